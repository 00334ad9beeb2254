"""Draws the calls of a program in the order of their dependencies, a lane for each stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gmlake.pictures import look
from gmlake.pictures.drawing import Drawing, Key, Plot, finite, spread
from gmlake.pictures.figures import Mark, Numbers, OwnFigure

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LANE_PIXELS, _LEAST_PIXELS, _MOST_PIXELS = 34, 150, 420
_HALF = 0.36  # of a lane, so that a gap shows between lanes
_ROOM = 1.0


CALL_KINDS = ("allocation", "free", "copy", "set", "kernel")
"""The kinds of calls, in the order of their legend."""


@dataclass(frozen=True)
class Calls(OwnFigure):
    """Calls of a program in the order of their dependencies, a lane for each stream.

    Arrays of shape (rectangles,): begin and end in times of the trace, lane and kind as indices
    into `lanes` and CALL_KINDS, count of the calls that each stands for. marks: of kind "peak".
    """

    begin: Numbers
    end: Numbers
    lane: NDArray[np.int32]
    kind: NDArray[np.int32]
    count: NDArray[np.int64]
    labels: tuple[str, ...]
    lanes: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    frame_pixels: ClassVar[int] = 360

    def draw(self) -> Drawing:
        """Return the picture; each kind of call can be hidden."""
        begin, end = finite(self.begin), finite(self.end)
        lanes = max(len(self.lanes), 1)
        height = min(max(_LEAST_PIXELS, 70 + _LANE_PIXELS * lanes), _MOST_PIXELS)
        x_range = spread(begin.min(initial=0.0), end.max(initial=1.0))
        plot = Plot(x_range, (-0.5, lanes - 0.5 + _ROOM), height=height)
        plot.x["label"] = "calls"
        plot.name_rows(dict(enumerate(self.lanes)))
        keys = _draw_kinds(plot, self)
        keys += _draw_marks(plot, self, lanes)
        return Drawing(plot, tuple(keys), _in_words(self))


def _draw_kinds(plot: Plot, calls: Calls) -> list[Key]:
    labels = np.array(calls.labels, dtype=object)
    keys = []
    hover = [("what", "label", ""), ("from", "left", "count"), ("calls", "count", "count")]
    for number, (kind, colour) in enumerate(zip(CALL_KINDS, look.PALETTE, strict=False)):
        chosen = np.flatnonzero(calls.kind == number)
        if not len(chosen):
            continue
        lane = calls.lane[chosen].astype(np.float32)
        columns = {
            "left": finite(calls.begin)[chosen].astype(np.float32),
            "right": finite(calls.end)[chosen].astype(np.float32),
            "bottom": lane - np.float32(_HALF),
            "top": lane + np.float32(_HALF),
            "count": calls.count[chosen].astype(np.float32),
            "label": list(labels[chosen]),
        }
        style = {"colour": colour, "alpha": 0.8, "width": 0.5}
        plot.add("rectangle", plot.source(columns), kind, hover=hover, **style)
        keys.append(Key(kind, colour, kind))
    return keys


def _draw_marks(plot: Plot, calls: Calls, lanes: int) -> list[Key]:
    if not calls.marks:
        return []
    columns = {
        "x": [mark.at for mark in calls.marks],
        "low": [-0.5] * len(calls.marks),
        "top": [lanes - 0.5 + _ROOM] * len(calls.marks),
        "label": [mark.label for mark in calls.marks],
    }
    style = {"colour": look.RESERVED, "width": 2}
    plot.add("segment", plot.source(columns), "peaks", hover=[("peak", "label", "")], **style)
    return [Key("peaks", look.RESERVED, "peaks", "line")]


def _in_words(calls: Calls) -> str:
    counts = {
        kind: int(calls.count[calls.kind == number].sum()) for number, kind in enumerate(CALL_KINDS)
    }
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    lanes = f"{len(calls.lanes):,} streams" if len(calls.lanes) > 1 else "one stream"
    text = f"{sum(counts.values()):,} calls on {lanes}: {told}." if told else "No calls."
    return " ".join([text, *(f"{mark.label}." for mark in calls.marks)])
