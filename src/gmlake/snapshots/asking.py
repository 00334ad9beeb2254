"""The words of a question about a recording: which moment, and what to group by."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MOMENTS: Final = ("peak", "refusal", "end", "start")
"""The moments that have a name; any other is the number of an event."""

GROUPS: Final = ("line", "category", "stream", "pool", "owner", "device")
"""What blocks are grouped by."""

_MOST_DIGITS: Final = 18


def check_moment(text: str) -> str:
    """Return the name of a moment or the number of an event. Raises ValueError for others."""
    if text in MOMENTS or (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return text
    raise ValueError(
        f"{text[:60]!r} is not a moment; there are {', '.join(MOMENTS)}, and numbers of events"
    )


def split_moment(text: str) -> tuple[str, str]:
    """Return the file and the moment of FILE@MOMENT; "" without one. Raises ValueError."""
    name, mark, at = text.rpartition("@")
    if not mark or not name or Path(text).exists():
        return text, ""
    return name, check_moment(at)
