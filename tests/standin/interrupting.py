"""Raises KeyboardInterrupt at a chosen place of gmlake's Python code, as Ctrl-C does."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT: Final = str(gmlake.__file__).removesuffix("__init__.py")

AT_ONCE: Final = ("lock", "without_torch_functions()")
"""What a `with` of gmlake's ends by no code of Python, which no interrupt can keep from its end."""

Place = tuple[str, int, int]
"""A file, a line, and for the how manieth time it runs; or the return of a call in C there."""


@cache
def blocks(filename: str) -> dict[int, range]:
    """Return the lines of each block that ends at once, by the line of its `with`."""
    found = ast.walk(ast.parse(Path(filename).read_text(encoding="utf-8")))
    return {
        one.lineno: range(one.lineno + 1, (one.end_lineno or 0) + 1)
        for one in found
        if isinstance(one, ast.With) and ast.unparse(one.items[0].context_expr).endswith(AT_ONCE)
    }


class _Watch:
    """The places that were passed, and the one to stop at."""

    def __init__(self, until: Place | None) -> None:
        self.seen: list[Place] = []
        self._until = until
        self._counts: Counter[tuple[str, int]] = Counter()
        self._last: dict[FrameType, int] = {}

    def _pass(self, name: str, line: int) -> None:
        self._counts[name, line] += 1
        place = (name, line, self._counts[name, line])
        self.seen.append(place)
        if place == self._until:
            raise KeyboardInterrupt

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(ROOT):
            return None
        before = self._last.pop(frame, 0)
        if event != "return":
            self._last[frame] = frame.f_lineno
        if event == "line" and before not in blocks(name).get(frame.f_lineno, ()):
            self._pass(name, frame.f_lineno)
        return self.trace

    def profile(self, frame: FrameType, event: str, called: object) -> None:
        name = frame.f_code.co_filename
        if event == "c_return" and name.startswith(ROOT):
            self._pass(f"{name}, {getattr(called, '__name__', called)}() returns", frame.f_lineno)


def run(
    use: Callable[[], object], until: Place | None = None, *, at_returns: bool = False
) -> tuple[list[Place], BaseException | None]:
    """Run it, with a KeyboardInterrupt at a place of gmlake's; return what was passed.

    at_returns: the returns of calls in C are places, too. The second part is what it raised.
    """
    watch = _Watch(until)
    sys.settrace(watch.trace)
    if at_returns:
        sys.setprofile(watch.profile)
    try:
        use()
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 (the caller judges)
        return watch.seen, error
    finally:
        sys.setprofile(None)
        sys.settrace(None)
    return watch.seen, None
