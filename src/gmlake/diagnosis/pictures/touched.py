"""Draws which bytes of an object each call accesses: offsets across, a row for each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from gmlake.pictures.drawing import Drawing, Key, Plot, finite, spread
from gmlake.pictures.figures import Numbers, OwnFigure
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROW_PIXELS: Final = 18
_LEAST_PIXELS: Final = 150
_MOST_PIXELS: Final = 700
_HALF: Final = 0.4
_MOST_NAME: Final = 28
_STEPS: Final = (
    (1, "once", "#56b4e9"),
    (4, "2 to 4 times", "#2a7fc1"),
    (16, "5 to 16 times", "#dd9d1a"),
    (None, "more often", "#d8323c"),
)
"""How often an element is accessed by one call: up to this, in words, and its colour."""


@dataclass(frozen=True)
class Touched(OwnFigure):
    """Which bytes of an object each call accesses, a row for each call.

    Arrays of shape (rectangles,): begin and end are offsets in the object, row an index into
    `rows`, weight how often each element is accessed; rows: what the calls are called.
    """

    begin: Numbers
    end: Numbers
    row: NDArray[np.int32]
    weight: NDArray[np.int64]
    rows: tuple[str, ...]
    size_bytes: int
    frame_pixels: ClassVar[int] = 420

    def draw(self) -> Drawing:
        """Return the picture."""
        rows = max(len(self.rows), 1)
        height = min(max(_LEAST_PIXELS, 70 + _ROW_PIXELS * rows), _MOST_PIXELS)
        plot = Plot(spread(0, self.size_bytes), (-0.6, rows - 0.4), height=height, axes="xy")
        plot.x |= {"kind": "bytes", "label": "offset in the object"}
        names = (
            name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}\u2026"
            for name in self.rows
        )
        plot.name_rows({rows - 1 - number: name for number, name in enumerate(names)})
        return Drawing(plot, tuple(_draw_steps(plot, self, rows)), _in_words(self))


def _draw_steps(plot: Plot, touched: Touched, rows: int) -> list[Key]:
    names = np.array(touched.rows, dtype=object)
    keys = []
    hover = [
        ("call", "label", ""),
        ("from", "left", "bytes"),
        ("size", "size", "bytes"),
        ("times", "weight", "count"),
    ]
    least = 1
    for most, words, colour in _STEPS:
        is_step = touched.weight >= least
        if most is not None:
            is_step &= touched.weight <= most
            least = most + 1
        chosen = np.flatnonzero(is_step)
        if not len(chosen):
            continue
        place = (rows - 1 - touched.row[chosen]).astype(np.float32)
        begin, end = finite(touched.begin)[chosen], finite(touched.end)[chosen]
        columns = {
            "left": begin,
            "right": end,
            "bottom": place - np.float32(_HALF),
            "top": place + np.float32(_HALF),
            "size": end - begin,
            "weight": touched.weight[chosen],
            "label": list(names[touched.row[chosen]]),
        }
        style = {"colour": colour, "alpha": 0.85, "width": 0.5}
        plot.add("rectangle", plot.source(columns), words, hover=hover, **style)
        keys.append(Key(words, colour, words))
    return keys


def _in_words(touched: Touched) -> str:
    order = np.argsort(touched.begin, kind="stable")
    begin, end = touched.begin[order], np.maximum.accumulate(touched.end[order])
    covered = 0.0
    if len(begin):
        starts = np.concatenate([[True], begin[1:] > end[:-1]])
        lasts = np.append(np.flatnonzero(starts)[1:] - 1, len(end) - 1)
        covered = float((end[lasts] - begin[starts]).sum())
    share = 100 * covered / touched.size_bytes if touched.size_bytes else 0.0
    return (
        f"{len(touched.rows):,} calls access {format_size(int(covered))} of "
        f"{format_size(touched.size_bytes)}, {share:.3g} %."
    )
