"""Where a program on the stand-in asks for what nobody knows there, and what it was answered.

A value is known, or assumed: GMLAKE_FORECAST_ASSUME says how. Under `even`, choices among unknown
numbers are uniform and half of the comparisons hold; under `most`, all choices are the same and all
comparisons hold; under `least`, choices are uniform and no comparison holds.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import torch

ASSUMED: Final = os.environ.get("GMLAKE_FORECAST_ASSUME", "even")


class Certainty(IntEnum):
    """How much is known of a value."""

    KNOWN = 0
    CHOSEN = 1
    """It follows from a choice among unknown numbers, such as the largest."""
    GUESSED = 2
    """It follows from a comparison of unknown numbers."""
    UNKNOWN = 3


_asked: dict[tuple[str, str, int], tuple[Certainty, Counter[bool | None]]] = {}
"""By what was asked, file and line: how well it was known, and what was answered."""

ROWS: Final = "rows"
TRUTH: Final = "truth"
NUMBER: Final = "number"


def note(
    what: str, certainty: Certainty, function: str = "", *, answer: bool | None = None
) -> None:
    """Note that the program asked for rows, a truth value or a number that is not known.

    Not what PyTorch asks itself, nor what a line asserts: such checks hold.
    """
    if certainty is Certainty.KNOWN:
        return
    file, line, is_pytorchs = _caller()
    is_check = is_pytorchs or linecache.getline(file, line).lstrip().startswith("assert ")
    if is_check and what != ROWS:
        return
    place = f"{what} {function}".strip(), file, line
    before, answers = _asked.setdefault(place, (certainty, Counter()))
    answers[answer] += 1
    _asked[place] = max(before, certainty), answers


def given() -> list[dict[str, Any]]:
    """Return where the program asked, the most frequent first.

    is_open: whether it may have gone another way. What follows from a choice and was answered the
    same each time, such as whether an end token came, is taken not to happen.
    """
    made = []
    for (what, file, line), (certainty, answers) in _asked.items():
        kind, _, function = what.partition(" ")
        is_steady = certainty is Certainty.CHOSEN and len(answers) == 1 < answers.total()
        named = {"what": kind, "function": function, "file": file, "line": line}
        counted = {"count": answers.total(), "answers": [*answers]}
        made.append({**named, **counted, "is_open": kind == ROWS or not is_steady})
    return sorted(made, key=lambda one: -one["count"])


def _caller() -> tuple[str, int, bool]:
    """Return the innermost line that is not PyTorch's nor ours, and whether PyTorch asks there."""
    ours, pytorchs = str(Path(__file__).parent), str(Path(torch.__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    is_pytorchs = frame.f_code.co_filename.startswith(pytorchs)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((ours, pytorchs)):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, is_pytorchs


class AssumedCount(int):
    """A number that follows from assumed values; where a size is such a number, that is noted."""


class UnknownNumber(float):
    """A number that a kernel would have computed; a program may decide by it."""


def _noted(compare: Callable[[float, object], bool]) -> Callable[[float, object], bool]:
    """Return a comparison that is noted."""

    def compared(self: float, other: object) -> bool:
        answer = compare(float(self), other)
        note(NUMBER, Certainty.GUESSED, answer=answer)
        return answer

    return compared


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(UnknownNumber, _name, _noted(getattr(float, _name)))
