"""The parts of one picture: a Bokeh model, and the page's texts and controls around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from gmlake.errors import UnsupportedError
from gmlake.pictures.look import SIZE_TICKS
from gmlake.units import format_time

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gmlake.pictures.figures import Numbers

Bokeh: TypeAlias = Any
"""A Bokeh model, untyped, since Bokeh may not be installed."""

OTHER: Final = "_other"

ADVICE: Final = "pictures need Bokeh: pip install 'gmlake[view]'"


@dataclass(frozen=True)
class Key:
    """One entry of a legend. name: of the renderer that it shows and hides; "" for none.

    style: "area", "line" or "dashes".
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


@dataclass(frozen=True)
class Drawing:
    """A picture to put on the page.

    model: a Bokeh figure. axes: "x" or "xy", those that zoom and pan. says: the picture in words,
    for screen readers. choices: of a list that selects, by number; empty for no list. run: its
    horizontal axis, if that is a run.
    """

    model: Bokeh
    keys: tuple[Key, ...]
    says: str
    axes: str = "x"
    choices: tuple[str, ...] = ()
    choices_label: str = ""
    remarks: tuple[str, ...] = ()
    run: Run | None = None


def has_bokeh() -> bool:
    """Whether pictures can be drawn here."""
    try:
        import bokeh  # noqa: F401
    except ImportError:
        return False
    return True


def require_bokeh() -> None:
    """Raise UnsupportedError, which says what to install, if pictures cannot be drawn."""
    if not has_bokeh():
        raise UnsupportedError(ADVICE)


def new_plot(
    x_range: tuple[float, float], y_range: tuple[float, float], **options: object
) -> Bokeh:
    """Return an empty Bokeh figure that zooms by dragging, by Ctrl and the wheel, and by keys.

    options: those of bokeh.plotting.figure; `axes` is "x" or "xy".
    """
    from bokeh.models import BoxZoomTool, Range1d, ResetTool, WheelZoomTool
    from bokeh.plotting import figure

    axes = options.pop("axes", "x")
    dimensions = "width" if axes == "x" else "both"
    box = BoxZoomTool(dimensions=dimensions)
    wheel = WheelZoomTool(dimensions=dimensions, modifiers={"ctrl": True})
    plot = figure(
        x_range=Range1d(*x_range, bounds=x_range, min_interval=_least_interval(x_range)),
        y_range=Range1d(*y_range, bounds=y_range, min_interval=_least_interval(y_range)),
        sizing_mode="stretch_width",
        tools=[box, wheel, ResetTool()],
        toolbar_location=None,
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_alpha=0,
        min_border_right=16,
        name="picture",
        **options,
    )
    plot.toolbar.active_drag = box
    plot.toolbar.active_scroll = wheel
    plot.grid.grid_line_alpha = 0.5
    return plot


def _least_interval(ends: tuple[float, float]) -> float:
    return (ends[1] - ends[0]) * 1e-7


def use_bytes(axis: Bokeh) -> None:
    """Label an axis in powers of 1024."""
    from bokeh.models import AdaptiveTicker, NumeralTickFormatter

    axis.ticker = AdaptiveTicker(base=1024, mantissas=list(SIZE_TICKS), min_interval=1)
    axis.formatter = NumeralTickFormatter(format="0.[00] b")


COUNTED: Final = 'return Number(tick.toPrecision(9)).toLocaleString("en")'
"""How a tick is written, in JavaScript."""


def use_run(plot: Bokeh, unit: str) -> None:
    """Label an axis with whole numbers; a line shows the page's current position."""
    from bokeh.models import AdaptiveTicker, CustomJSTickFormatter, Span

    whole = {"min_interval": 1} if unit != "seconds" else {}
    plot.xaxis.ticker = AdaptiveTicker(base=10, mantissas=[1, 2, 5], **whole)
    plot.xaxis.formatter = CustomJSTickFormatter(code=COUNTED)
    plot.xaxis.axis_label = unit
    cursor = Span(dimension="height", line_width=2, line_alpha=0.7, name="moment")
    plot.add_layout(cursor)


def place_of(at: float, unit: str, seconds: float | None = None) -> str:
    """Describe a place in a run, as "event 1,204, 2.3 s in"."""
    said = f"event {at:,.0f}" if unit == "events" else f"{at:,.6g} {unit}"
    return said if seconds is None else f"{said}, {format_time(seconds)} in"


def add_hover(
    plot: Bokeh, renderers: list[Bokeh], tooltips: list[tuple[str, str]], **options: object
) -> None:
    """Show figures at the mouse pointer. Bokeh escapes values from the data."""
    from bokeh.models import HoverTool

    plot.add_tools(HoverTool(renderers=renderers, tooltips=tooltips, **options))


def add_rectangles(plot: Bokeh, source: Bokeh, **style: object) -> Bokeh:
    """Draw the columns left, right, bottom and top of a source; style: as plot.quad() takes it."""
    return plot.quad(left="left", right="right", bottom="bottom", top="top", source=source, **style)


def spread(low: float, high: float, least: float = 1.0) -> tuple[float, float]:
    """Return a range of an axis that is never empty."""
    return (low, high) if high - low >= least else (low, low + least)


def finite(values: ArrayLike) -> Numbers:
    """Return float64 without NaN and infinities, which a browser could not draw."""
    numbers: Numbers = np.nan_to_num(np.asarray(values, np.float64), posinf=0.0, neginf=0.0)
    return numbers
