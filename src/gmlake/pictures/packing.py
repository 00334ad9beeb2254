"""Draws a plan or a recording as rectangles, time across and address up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmlake.pictures import look
from gmlake.pictures.drawing import (
    Bokeh,
    Drawing,
    Key,
    add_hover,
    add_rectangles,
    finite,
    new_plot,
    spread,
    use_bytes,
)
from gmlake.pictures.figures import PUT_TOGETHER
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.pictures.figures import Numbers, Packing

_HEIGHT = 420
_HEADROOM = 1.04
_LEAST_TIME = 1e-9
_FILLED, _PALE = 0.75, 0.2


def draw(packing: Packing) -> Drawing:
    """Return the picture; each key of the legend can be hidden."""
    begin, end = finite(packing.begin), finite(packing.end)
    offset, size = finite(packing.offset), finite(packing.size)
    top = max((offset + size).max(initial=0), packing.height_bytes, packing.bound_bytes)
    x_range = spread(begin.min(initial=np.inf), end.max(initial=0.0), _LEAST_TIME)
    if not len(begin):
        x_range = (0.0, 1.0)
    plot = new_plot(x_range, spread(0, top * _HEADROOM), height=_HEIGHT, axes="xy")
    use_bytes(plot.yaxis)
    plot.xaxis.axis_label = packing.unit
    plot.yaxis.axis_label = "address, from the start"
    keys = _draw_rectangles(plot, packing, (begin, end, offset, size))
    keys += _draw_lines(plot, packing)
    return Drawing(plot, tuple(keys), _in_words(packing), axes="xy")


def _draw_rectangles(plot: Bokeh, packing: Packing, columns: tuple[Numbers, ...]) -> list[Key]:
    labels = np.array(packing.labels, dtype=object)
    keys, renderers = [], []
    entries = enumerate(zip(packing.keys, look.colours_of(packing.keys), strict=True))
    for number, (key, colour) in sorted(entries, key=lambda entry: entry[1][0] != PUT_TOGETHER):
        chosen = np.flatnonzero(packing.colour == number)
        if not len(chosen):
            continue
        name = f"key{number}"
        source = _source(
            tuple(column[chosen] for column in columns), labels[chosen] if len(labels) else labels
        )
        is_pale = key == PUT_TOGETHER
        renderers.append(_draw_key(plot, source, look.FREE if is_pale else colour, name))
        renderers[-1].glyph.fill_alpha = _PALE if is_pale else _FILLED
        style = "hollow" if is_pale else "area"
        keys.append(Key(key, look.FREE if is_pale else colour, name, style))
    tooltips = [
        ("what", "@label"),
        ("size", f"@size{{{look.BYTES}}}"),
        ("from", f"@bottom{{{look.BYTES}}}"),
        (packing.unit, "@left{%.6g} to @right{%.6g}"),
    ]
    shown = tooltips if packing.labels else tooltips[1:]
    add_hover(plot, renderers, shown, formatters={"@left": "printf", "@right": "printf"})
    return keys


def _source(rectangles: tuple[Numbers, ...], labels: NDArray[np.object_]) -> Bokeh:
    from bokeh.models import ColumnDataSource

    begin, end, offset, size = rectangles
    columns: dict[str, object] = {
        "left": begin.astype(np.float32),
        "right": end.astype(np.float32),
        "bottom": offset.astype(np.float32),
        "top": (offset + size).astype(np.float32),
        "size": size.astype(np.float32),
    }
    if len(labels):
        columns["label"] = list(labels)
    return ColumnDataSource(columns)


def _draw_key(plot: Bokeh, source: Bokeh, colour: str, name: str) -> Bokeh:
    return add_rectangles(
        plot,
        source,
        fill_color=colour,
        line_color=colour,
        line_width=0.5,
        hover_fill_alpha=1.0,
        name=name,
    )


def _draw_lines(plot: Bokeh, packing: Packing) -> list[Key]:
    from bokeh.models import Span

    height, bound = packing.height_bytes, packing.bound_bytes
    lines = (
        (height, "height", look.RESERVED, "solid", "line", f"height {format_size(height)}"),
        (
            *(bound, "bound", look.OUT_OF_MEMORY, "dashed", "dashes"),
            f"no plan is lower than {format_size(bound)}",
        ),
    )
    keys = []
    for location, name, colour, dash, style, label in lines:
        if location:
            span = {"location": location, "dimension": "width", "name": name, "line_width": 2}
            plot.add_layout(Span(**span, line_color=colour, line_dash=dash))
            keys.append(Key(label, colour, name, style))
    return keys


def _in_words(packing: Packing) -> str:
    text = f"{len(packing.begin):,} rectangles"
    if packing.height_bytes:
        text += f" in {format_size(packing.height_bytes)}"
    if packing.bound_bytes:
        text += f"; no plan is lower than {format_size(packing.bound_bytes)}"
    return f"{text}."
