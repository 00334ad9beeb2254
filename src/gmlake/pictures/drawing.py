"""The parts of one picture: what plot.js draws, and the page's texts and controls around it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from gmlake.units import format_time

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gmlake.pictures.figures import Numbers

    Kind = Literal["area", "band", "line", "rectangle", "segment", "step", "text", "level"]

OTHER: Final = "_other"


@dataclass(frozen=True)
class Key:
    """One entry of a legend. name: of the part that it shows and hides; "" for none.

    style: "area", "hollow", "line" or "dashes".
    """

    label: str
    colour: str
    name: str = ""
    style: str = "area"


@dataclass(frozen=True)
class Run:
    """An axis that counts events or shows times: first and last of each, and the first step.

    Columns of a picture whose names end in OTHER have the places on the axis not shown.
    """

    events: tuple[float, float]
    times: tuple[float, float] | None = None
    first_step: tuple[float, float] | None = None


class Plot:
    """What plot.js draws: two axes, columns of numbers and texts, and the parts that show them.

    x, y: of each axis its first and last value, and how it is labelled. kind: "count", "whole",
    "bytes" or "named", which has `names` by place. height: in pixels. axes: "x" or "xy", those that
    zoom. moment: of entries with the columns first and end, those with first <= moment < end are
    drawn.
    """

    def __init__(
        self,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        *,
        height: int,
        axes: str = "x",
    ) -> None:
        self.x: dict[str, Any] = {"range": [*map(float, x_range)], "kind": "count", "label": ""}
        self.y: dict[str, Any] = {"range": [*map(float, y_range)], "kind": "count", "label": ""}
        self.height = height
        self.axes = axes
        self.moment = 0
        self._sources: list[dict[str, Any]] = []
        self._parts: list[dict[str, Any]] = []

    def source(self, columns: Mapping[str, Any]) -> int:
        """Add columns of one length; arrays are sent as float32 if they are, else as float64."""
        self._sources.append({name: _packed(column) for name, column in columns.items()})
        return len(self._sources) - 1

    def add(
        self,
        kind: Kind,
        source: int,
        name: str = "",
        *,
        hover: Sequence[tuple[str, str, str]] = (),
        **style: object,
    ) -> None:
        """Draw columns of a source, above all parts before.

        A rectangle takes left, right, bottom and top; a segment x, low, x1 (or x) and top; a step
        and a line x and y; an area, above all areas before it, x and the column `value`; a band x,
        low and top; a text x, y and name; a level, all across, y.
        hover: (what, column, format) of each line that is shown at the mouse; the format is
        "bytes", "count" or "" for a text. style: colour, alpha, width, dash and others of plot.js;
        one that begins with "@" is a column.
        """
        part = {"kind": kind, "source": source, "name": name, **style}
        self._parts.append({**part, "hover": list(hover)} if hover else part)

    def name_rows(self, names: Mapping[float, str]) -> None:
        """Label places of the vertical axis by names."""
        self.y |= {"kind": "named", "names": [[place, name] for place, name in names.items()]}

    def to_json(self) -> str:
        """Return it for plot.js."""
        parts = {"x": self.x, "y": self.y, "sources": self._sources, "parts": self._parts}
        return json.dumps(parts | {"moment": self.moment}, separators=(",", ":"))


def _packed(column: Any) -> Any:  # noqa: ANN401 (what JSON takes)
    if not isinstance(column, np.ndarray):
        column = list(column)
        each = dict.fromkeys(column) if {*map(type, column)} == {str} else column
        if len(each) > len(column) // 2:
            return column
        number = {text: place for place, text in enumerate(each)}
        return {"texts": list(each), "at": [number[text] for text in column]}
    kind = "<f4" if column.dtype == np.float32 else "<f8"
    return {kind[1:]: base64.b64encode(column.astype(kind).tobytes()).decode("ascii")}


@dataclass(frozen=True)
class Drawing:
    """A picture to put on the page.

    says: the picture in words, for screen readers. choices: of a list that selects, by number;
    empty for no list. run: its horizontal axis, if that is a run.
    """

    plot: Plot
    keys: tuple[Key, ...]
    says: str
    choices: tuple[str, ...] = ()
    choices_label: str = ""
    remarks: tuple[str, ...] = ()
    run: Run | None = None


def use_run(plot: Plot, unit: str) -> None:
    """Label the horizontal axis with numbers of `unit`; a line shows the page's moment."""
    plot.x |= {"kind": "count" if unit == "seconds" else "whole", "label": unit, "moment": True}


def place_of(at: float, unit: str, seconds: float | None = None) -> str:
    """Describe a place in a run, as "event 1,204, 2.3 s in"."""
    said = f"event {at:,.0f}" if unit == "events" else f"{at:,.6g} {unit}"
    return said if seconds is None else f"{said}, {format_time(seconds)} in"


def spread(low: float, high: float, least: float = 1.0) -> tuple[float, float]:
    """Return a range of an axis that is never empty."""
    return (low, high) if high - low >= least else (low, low + least)


def finite(values: ArrayLike) -> Numbers:
    """Return float64 without NaN and infinities, which a browser could not draw."""
    numbers: Numbers = np.nan_to_num(np.asarray(values, np.float64), posinf=0.0, neginf=0.0)
    return numbers
