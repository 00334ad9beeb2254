"""What a program is told where it asks for what it cannot have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(function: Callable[..., object], *arguments: Any, **settings: Any) -> str:
    """Return the type and the text of what a call raises, "" where it raises nothing."""
    try:
        function(*arguments, **settings)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""
