"""Messages to the user, each shown once."""

from __future__ import annotations

import sys
import traceback
import warnings
from contextlib import suppress

from gmlake.errors import GmlakeWarning
from gmlake.printable import printable

_PASSED_OVER = ("gmlake", "torch", "contextlib")
_said: set[str] = set()


def once(key: str, text: str) -> None:
    """Warn with one line, at the user's call into gmlake or PyTorch; once per process."""
    if key not in _said:
        _said.add(key)
        warnings.warn(text, GmlakeWarning, stacklevel=_level())


def warn_safely(text: str) -> None:
    """Warn without raising: while CUDA starts, an exception would leave it unusable."""
    try:
        warnings.warn(text, GmlakeWarning, stacklevel=_level())
    except GmlakeWarning:
        say(text)


def say(text: str) -> None:
    """Write one line on stderr at once, so that those of several processes do not mix."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"gmlake: {printable(text)}\n")
            sys.stderr.flush()


def say_failure(text: str) -> None:
    """Say it, and how the exception that is being handled came about."""
    say(text)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            traceback.print_exc()


def _level() -> int:
    """Return the stack level, as seen by once(), of the nearest frame of the user's, if any."""
    level, frame = 1, sys._getframe(1).f_back  # noqa: SLF001
    while frame is not None:
        level += 1
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _PASSED_OVER:
            return level
        frame = frame.f_back
    return level + 1
