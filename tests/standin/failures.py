"""What programs say of calls that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def failure(call: Callable[[], object]) -> str:
    """Return the kind and text of what a call raises, "" where it raises nothing."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 (each is looked at)
        return f"{type(error).__name__}: {error}"
    return ""
