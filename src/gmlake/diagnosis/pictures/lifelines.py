"""Draws objects as bars from allocation to free, with each access and the waste in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np

from gmlake.pictures import look
from gmlake.pictures.drawing import Drawing, Key, Plot, spread
from gmlake.pictures.figures import OwnFigure
from gmlake.units import format_size

_ROW_PIXELS: Final = 22
_LEAST_PIXELS: Final = 140
_HALF: Final = 0.32
_MOST_NAME: Final = 28
_ACCESS_COLOURS: Final = ("#2a7fc1", "#b3202b", "#868d98")
_PALE: Final = 0.28


ACCESS_KINDS = ("reads", "writes", "touches")
"""What a call does to an object; "touches" if that is not known."""


@dataclass(frozen=True)
class Lifeline:
    """An object from its allocation to its free, in times of the trace.

    accesses: (time, index into ACCESS_KINDS, what accessed it). wasted: (begin, end, pattern) of
    stretches in which it lives for nothing.
    """

    name: str
    size_bytes: int
    begin: float
    end: float
    accesses: tuple[tuple[float, int, str], ...] = ()
    wasted: tuple[tuple[float, float, str], ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Lifelines(OwnFigure):
    """Objects, largest first, and who accesses them; colours: of patterns, grey without one."""

    rows: tuple[Lifeline, ...]
    colours: Mapping[str, str] = field(default_factory=dict)
    frame_pixels: ClassVar[int] = 560

    def draw(self) -> Drawing:
        """Return the picture; a click on an object filters the table below."""
        rows = self.rows
        last = max((row.end for row in rows), default=1.0)
        first = min((row.begin for row in rows), default=0.0)
        height = max(_LEAST_PIXELS, 60 + _ROW_PIXELS * len(rows))
        plot = Plot(spread(first, last), (-0.6, max(len(rows), 1) - 0.4), height=height)
        plot.x["label"] = "calls"
        plot.name_rows(
            {
                _place(number, len(rows)): _tick(row.name, row.size_bytes)
                for number, row in enumerate(rows)
            }
        )
        keys = [*_draw_bars(plot, self), *_draw_wasted(plot, self)]
        keys += _draw_accesses(plot, self)
        return Drawing(plot, tuple(keys), _in_words(self))


def _place(number: int, count: int) -> int:
    """Return where a row lies: the first one on top."""
    return count - 1 - number


def _tick(name: str, size_bytes: int) -> str:
    short = name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}\u2026"
    return f"{short}  {format_size(size_bytes)}"


def _draw_bars(plot: Plot, lifelines: Lifelines) -> list[Key]:
    rows = lifelines.rows
    places = np.array([_place(number, len(rows)) for number in range(len(rows))], np.float64)
    columns = {
        "left": [row.begin for row in rows],
        "right": [row.end for row in rows],
        "bottom": places - _HALF,
        "top": places + _HALF,
        "name": [row.name for row in rows],
        "label": [row.label for row in rows],
        "size": [float(row.size_bytes) for row in rows],
        "lives": [f"{row.begin:,.0f} to {row.end:,.0f}" for row in rows],
        "row": list(range(len(rows))),
    }
    hover = [("object", "name", ""), ("size", "size", "bytes"), ("lives", "lives", "")]
    style = {"colour": look.FREE, "alpha": _PALE, "others": _PALE / 2, "tap": "row"}
    hover.append(("", "label", ""))
    plot.add("rectangle", plot.source(columns), "searches", hover=hover, **style)
    return [Key("alive", look.FREE, "", "hollow")]


def _draw_wasted(plot: Plot, lifelines: Lifelines) -> list[Key]:
    by_pattern: dict[str, list[tuple[float, float, int]]] = {}
    for number, row in enumerate(lifelines.rows):
        for begin, end, pattern in row.wasted:
            place = _place(number, len(lifelines.rows))
            by_pattern.setdefault(pattern, []).append((begin, end, place))
    keys = []
    for pattern, stretches in sorted(by_pattern.items()):
        begins, ends, places = (
            np.array(column, np.float64) for column in zip(*stretches, strict=True)
        )
        columns = {
            "left": begins,
            "right": ends,
            "bottom": places - _HALF,
            "top": places + _HALF,
            "pattern": [pattern] * len(stretches),
            "calls": [f"{begin:,.0f} to {end:,.0f}" for begin, end, _ in stretches],
        }
        colour = lifelines.colours.get(pattern, look.FREE)
        name = f"wasted {pattern}"
        hover = [("", "pattern", ""), ("calls", "calls", "")]
        style = {"colour": colour, "alpha": 0.45, "isHatched": True}
        plot.add("rectangle", plot.source(columns), name, hover=hover, **style)
        keys.append(Key(pattern, colour, name))
    return keys


def _draw_accesses(plot: Plot, lifelines: Lifelines) -> list[Key]:
    keys = []
    for kind, (word, colour) in enumerate(zip(ACCESS_KINDS, _ACCESS_COLOURS, strict=True)):
        marks = [
            (time, _place(number, len(lifelines.rows)), label)
            for number, row in enumerate(lifelines.rows)
            for time, which, label in row.accesses
            if which == kind
        ]
        if not marks:
            continue
        places = np.array([place for _, place, _ in marks], np.float64)
        columns = {
            "x": [time + 0.5 for time, _, _ in marks],
            "low": places - _HALF,
            "top": places + _HALF,
            "label": [label for _, _, label in marks],
            "call": [f"{time:,.0f}" for time, _, _ in marks],
        }
        hover = [("", "label", ""), ("call", "call", "")]
        plot.add("segment", plot.source(columns), word, colour=colour, width=2, hover=hover)
        keys.append(Key(word, colour, word, "line"))
    return keys


def _in_words(lifelines: Lifelines) -> str:
    rows = lifelines.rows
    if not rows:
        return "No object was live."
    wasteful = sum(bool(row.wasted) for row in rows)
    largest = rows[0]
    return (
        f"{len(rows):,} objects; {wasteful:,} of them live for nothing at times. "
        f"The largest is {largest.name}, {format_size(largest.size_bytes)}."
    )
