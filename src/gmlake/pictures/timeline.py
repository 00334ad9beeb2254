"""Draws live bytes over time, stacked by category, under the line of what was reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmlake.pictures import look
from gmlake.pictures.drawing import (
    Bokeh,
    Drawing,
    Key,
    add_hover,
    finite,
    new_plot,
    spread,
    use_bytes,
)
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.pictures.figures import Numbers, Timeline

_HEIGHT = 340
_HEADROOM = 1.06
_LEAST_SECONDS = 1e-9
_SHOWN_REFUSALS = 5
_MARKS = {
    "step": ("steps", look.MARK),
    "phase": ("phases", look.CATEGORY_COLOURS["temporary"]),
    "peak": ("peaks", look.RESERVED),
    "out of memory": ("out of memory", look.OUT_OF_MEMORY),
}


def draw(timeline: Timeline) -> Drawing:
    """Return the picture; layers that are 0 throughout are left out."""
    seconds = finite(timeline.seconds)
    layers = {name: finite(live) for name, live in timeline.live.items() if np.any(live)}
    total = sum(layers.values(), np.zeros(len(seconds)))
    reserved = None if timeline.reserved is None else finite(timeline.reserved)
    top = max(total.max(initial=0.0), 0.0 if reserved is None else reserved.max(initial=0.0))
    first, last = (seconds[0], seconds[-1]) if len(seconds) else (0.0, 0.0)
    plot = new_plot(spread(first, last, _LEAST_SECONDS), spread(0, top * _HEADROOM), height=_HEIGHT)
    use_bytes(plot.yaxis)
    plot.xaxis.axis_label = timeline.unit
    source = _source(seconds, layers, total, reserved)
    keys = [
        *_draw_layers(plot, source, list(layers)),
        *_draw_reserved(plot, source, reserved),
        *_draw_marks(plot, timeline, top * _HEADROOM),
    ]
    _add_readout(plot, source, list(layers), timeline.unit, has_reserved=reserved is not None)
    return Drawing(
        plot,
        tuple(keys),
        _in_words(seconds, layers, total, reserved, timeline.unit),
        remarks=_refusals(timeline),
    )


def _source(
    seconds: Numbers, layers: dict[str, Numbers], total: Numbers, reserved: Numbers | None
) -> Bokeh:
    from bokeh.models import ColumnDataSource

    columns = {"seconds": seconds, "total": total}
    below = np.zeros(len(seconds))
    for number, live in enumerate(layers.values()):
        columns |= {f"live{number}": live, f"low{number}": below, f"high{number}": below + live}
        below = below + live
    if reserved is not None:
        columns["reserved"] = reserved
    return ColumnDataSource(columns)


def _draw_layers(plot: Bokeh, source: Bokeh, names: list[str]) -> list[Key]:
    keys = []
    for number, name in enumerate(names):
        colour = look.category_colour(name)
        plot.varea_step(
            "seconds",
            f"low{number}",
            f"high{number}",
            source=source,
            step_mode="after",
            fill_color=colour,
            fill_alpha=0.85,
            name=f"layer{number}",
        )
        keys.append(Key(name, colour, f"layer{number}"))
    return keys


def _draw_reserved(plot: Bokeh, source: Bokeh, reserved: Numbers | None) -> list[Key]:
    if reserved is None:
        return []
    plot.step(
        "seconds",
        "reserved",
        source=source,
        mode="after",
        line_color=look.RESERVED,
        line_width=2,
        name="reserved",
    )
    return [Key("reserved", look.RESERVED, "reserved", "line")]


def _draw_marks(plot: Bokeh, timeline: Timeline, top: float) -> list[Key]:
    from bokeh.models import ColumnDataSource

    keys = []
    for kind, (label, colour) in _MARKS.items():
        chosen = [mark for mark in timeline.marks if mark.kind == kind]
        if not chosen:
            continue
        source = ColumnDataSource(
            {
                "x": [mark.seconds for mark in chosen],
                "low": [0.0] * len(chosen),
                "top": [top] * len(chosen),
                "label": [mark.label for mark in chosen],
            }
        )
        lines = plot.segment(
            "x",
            "low",
            "x",
            "top",
            source=source,
            line_color=colour,
            line_dash="solid" if kind == "out of memory" else "dashed",
            line_width=2 if kind == "out of memory" else 1,
            name=label,
        )
        add_hover(
            plot,
            [lines],
            [(kind, "@label"), (timeline.unit, "@x{%.6g}")],
            formatters={"@x": "printf"},
        )
        keys.append(Key(label, colour, label, "line" if kind == "out of memory" else "dashes"))
    return keys


def _add_readout(
    plot: Bokeh, source: Bokeh, names: list[str], unit: str, *, has_reserved: bool
) -> None:
    """Let the mouse read every layer at its moment, wherever it is above or below."""
    line = plot.line("seconds", "total", source=source, line_alpha=0, name="total")
    tooltips = [(unit, "@seconds{%.6g}")]
    if has_reserved:
        tooltips.append(("reserved", f"@reserved{{{look.BYTES}}}"))
    tooltips.append(("live", f"@total{{{look.BYTES}}}"))
    for number, name in reversed(list(enumerate(names))):
        tooltips.append((name, f"@live{number}{{{look.BYTES}}}"))
    add_hover(
        plot,
        [line],
        tooltips,
        mode="vline",
        line_policy="nearest",
        point_policy="follow_mouse",
        formatters={"@seconds": "printf"},
    )


def _in_words(
    seconds: Numbers,
    layers: dict[str, Numbers],
    total: Numbers,
    reserved: Numbers | None,
    unit: str,
) -> str:
    if not len(seconds):
        return "Nothing was recorded."
    peak = int(np.argmax(total))
    text = f"At the peak, {seconds[peak]:.6g} {unit} in, {format_size(int(total[peak]))} were live"
    if reserved is not None:
        text += f"; at most {format_size(int(reserved.max()))} were reserved"
    parts = [
        f"{name} {format_size(int(live[peak]))}" for name, live in layers.items() if live[peak]
    ]
    return f"{text}. At the peak: {', '.join(parts)}." if len(parts) > 1 else f"{text}."


def _refusals(timeline: Timeline) -> tuple[str, ...]:
    """Return what ran out of memory in words, as nobody should have to find it with the mouse."""
    marks = [mark for mark in timeline.marks if mark.kind == "out of memory"]
    lines = [
        f"Out of memory at {m.seconds:.6g} {timeline.unit}: {m.label}"
        for m in marks[:_SHOWN_REFUSALS]
    ]
    if len(marks) > _SHOWN_REFUSALS:
        lines.append(f"and {len(marks) - _SHOWN_REFUSALS:,} more times")
    return tuple(lines)
