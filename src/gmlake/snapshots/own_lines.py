"""Which frame of a call path is the user's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_FOREIGN: Final = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*|torch[/\\]csrc|c10|aten)[/\\]"
    r"|  (<|\?\?|:|\w+\.(cpp|cu|h):)"
)
"""Of a package that was installed, of Python itself, of C++, or of no file."""


def own_frame(frames: Iterable[str]) -> str:
    """Return the innermost frame that is the user's own, "function  file:line"; "" if none is.

    frames: innermost first, as those of Site.
    """
    return next((frame for frame in frames if not _FOREIGN.search(frame)), "")
