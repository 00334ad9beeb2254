"""Draws live bytes over a run, stacked by class, under the line of reserved bytes."""

from __future__ import annotations

import numpy as np

from gmlake.pictures import look
from gmlake.pictures.drawing import (
    OTHER,
    Drawing,
    Key,
    Plot,
    Run,
    finite,
    place_of,
    spread,
    use_run,
)
from gmlake.pictures.figures import Mark, Numbers, Timeline
from gmlake.units import format_size

_HEIGHT = 340
_HEADROOM = 1.18
_NAMES_AT = {"out of memory": 1.13, "peak": 1.13, "step": 1.08, "phase": 1.03}  # of the highest
_LEAST_SECONDS = 1e-9
_SHOWN_REFUSALS = 5
_DASHES = (6, 4)  # pixels
_MARKS = {
    "step": ("steps", look.MARK),
    "phase": ("phases", look.CATEGORY_COLOURS["temporary"]),
    "peak": ("peaks", look.RESERVED),
    "out of memory": ("out of memory", look.OUT_OF_MEMORY),
}


def draw(timeline: Timeline) -> Drawing:
    """Return the picture; layers that are 0 throughout are left out."""
    at = finite(timeline.at)
    layers = {name: finite(live) for name, live in timeline.live.items() if np.any(live)}
    total = sum(layers.values(), np.zeros(len(at)))
    reserved = None if timeline.reserved is None else finite(timeline.reserved)
    top = max(total.max(initial=0.0), 0.0 if reserved is None else reserved.max(initial=0.0))
    run = _run(timeline, at)
    plot = Plot(run.events, spread(0, top * _HEADROOM), height=_HEIGHT)
    plot.y["kind"] = "bytes"
    use_run(plot, timeline.unit)
    source = plot.source(_columns(timeline, layers, total, reserved))
    keys = [
        *_draw_layers(plot, source, list(layers)),
        *_draw_reserved(plot, source, list(layers), has_reserved=reserved is not None),
        *_draw_marks(plot, timeline, top * _HEADROOM),
    ]
    _draw_names(plot, timeline, top)
    return Drawing(
        plot,
        tuple(keys),
        _in_words(timeline, layers, total, reserved),
        remarks=_refusals(timeline),
        run=run,
    )


def _run(timeline: Timeline, at: Numbers) -> Run:
    first_at, last_at = (at[0], at[-1]) if len(at) else (0.0, 0.0)
    events = spread(first_at, last_at, _LEAST_SECONDS)
    step = next((mark for mark in timeline.marks if mark.kind == "step"), None)
    first = None if step is None else (step.at, step.seconds or 0.0)
    if timeline.seconds is None or not len(at):
        return Run(events, None, first)
    seconds = finite(timeline.seconds)
    return Run(events, spread(seconds[0], seconds[-1], _LEAST_SECONDS), first)


def _columns(
    timeline: Timeline, layers: dict[str, Numbers], total: Numbers, reserved: Numbers | None
) -> dict[str, object]:
    at, seconds = finite(timeline.at), timeline.seconds
    times = [None] * len(at) if seconds is None else seconds.tolist()
    when = [
        place_of(place, timeline.unit, time) for place, time in zip(at.tolist(), times, strict=True)
    ]
    columns = {"x": at, "total": total, "when": when}
    if seconds is not None:
        columns[f"x{OTHER}"] = finite(seconds)
    columns |= {f"live{number}": live for number, live in enumerate(layers.values())}
    return columns if reserved is None else {**columns, "reserved": reserved}


def _draw_layers(plot: Plot, source: int, names: list[str]) -> list[Key]:
    keys = []
    for number, (name, colour) in enumerate(zip(names, look.colours_of(names), strict=True)):
        part = f"layer{number}"
        plot.add("area", source, part, value=f"live{number}", colour=colour, alpha=0.85)
        keys.append(Key(name, colour, part))
    return keys


def _draw_reserved(plot: Plot, source: int, names: list[str], *, has_reserved: bool) -> list[Key]:
    """Draw the line of reserved bytes, and tell every layer's value at the mouse's moment."""
    hover = [("at", "when", "")]
    hover += [("reserved", "reserved", "bytes")] if has_reserved else []
    hover.append(("live", "total", "bytes"))
    hover += [(name, f"live{number}", "bytes") for number, name in reversed([*enumerate(names)])]
    if not has_reserved:
        plot.add("step", source, y="total", alpha=0, hover=hover)
        return []
    plot.add("step", source, "reserved", y="reserved", colour=look.RESERVED, width=2, hover=hover)
    return [Key("reserved", look.RESERVED, "reserved", "line")]


def _columns_of(marks: list[Mark]) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {"x": [mark.at for mark in marks]}
    if all(mark.seconds is not None for mark in marks):
        columns[f"x{OTHER}"] = [mark.seconds for mark in marks]
    return columns


def _draw_marks(plot: Plot, timeline: Timeline, top: float) -> list[Key]:
    keys = []
    for kind, (label, colour) in _MARKS.items():
        chosen = [mark for mark in timeline.marks if mark.kind == kind]
        if not chosen:
            continue
        columns = {
            **_columns_of(chosen),
            "low": [0.0] * len(chosen),
            "top": [top] * len(chosen),
            "label": [mark.label for mark in chosen],
            "when": [place_of(mark.at, timeline.unit, mark.seconds) for mark in chosen],
        }
        is_refusal = kind == "out of memory"
        style = {"width": 2} if is_refusal else {"dash": _DASHES}
        hover = [(kind, "label", ""), ("at", "when", "")]
        plot.add("segment", plot.source(columns), label, colour=colour, hover=hover, **style)
        keys.append(Key(label, colour, label, "line" if is_refusal else "dashes"))
    return keys


def _draw_names(plot: Plot, timeline: Timeline, top: float) -> None:
    """Label the marks for which there is room."""
    marks = list(timeline.marks)
    if marks:
        columns = {
            **_columns_of(marks),
            "y": [top * _NAMES_AT[mark.kind] for mark in marks],
            "text": [mark.label for mark in marks],
        }
        plot.add("text", plot.source(columns), "names")


def _in_words(
    timeline: Timeline, layers: dict[str, Numbers], total: Numbers, reserved: Numbers | None
) -> str:
    if not len(timeline.at):
        return "Nothing was recorded."
    peak = int(np.argmax(total))
    seconds = None if timeline.seconds is None else float(timeline.seconds[peak])
    place = place_of(float(timeline.at[peak]), timeline.unit, seconds)
    text = f"The peak is at {place}: {format_size(int(total[peak]))} live"
    if reserved is not None:
        text += f"; at most {format_size(int(reserved.max()))} were reserved"
    parts = [
        f"{name} {format_size(int(live[peak]))}" for name, live in layers.items() if live[peak]
    ]
    return f"{text}. Live then: {', '.join(parts)}." if len(parts) > 1 else f"{text}."


def _refusals(timeline: Timeline) -> tuple[str, ...]:
    """Describe the refusals in words, so that the reader need not search with the mouse."""
    marks = [mark for mark in timeline.marks if mark.kind == "out of memory"]
    lines = [
        f"Out of memory at {place_of(m.at, timeline.unit, m.seconds)}: {m.label}"
        for m in marks[:_SHOWN_REFUSALS]
    ]
    if len(marks) > _SHOWN_REFUSALS:
        lines.append(f"and {len(marks) - _SHOWN_REFUSALS:,} more times")
    return tuple(lines)
