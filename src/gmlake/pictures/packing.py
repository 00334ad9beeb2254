"""Draws blocks placed over time as rectangles, time across and address up."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from gmlake.pictures.figures import PUT_TOGETHER, Numbers, Packing
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    plot = Plot(x_range, spread(0, top * _HEADROOM), height=_HEIGHT, axes="xy")
    plot.y |= {"kind": "bytes", "label": "where it lies"}
    use_run(plot, packing.unit)
    keys = _draw_rectangles(plot, packing, (begin, end, offset, size))
    keys += _draw_lines(plot, packing)
    run = Run(x_range, _ends(packing.seconds)) if packing.group else None
    return Drawing(plot, tuple(keys), _in_words(packing), run=run)


def _ends(seconds: tuple[Numbers, Numbers] | None) -> tuple[float, float] | None:
    if seconds is None or not len(seconds[0]):
        return None
    return spread(float(seconds[0].min()), float(seconds[1].max()), _LEAST_TIME)


def _draw_rectangles(plot: Plot, packing: Packing, columns: tuple[Numbers, ...]) -> list[Key]:
    labels = np.array(packing.labels, dtype=object)
    keys = []
    hover = [
        ("what", "label", ""),
        ("size", "size", "bytes"),
        ("above the lowest", "bottom", "bytes"),
        ("from", "begin", ""),
        ("to", "end", ""),
    ]
    entries = enumerate(zip(packing.keys, look.colours_of(packing.keys), strict=True))
    for number, (key, own) in sorted(entries, key=lambda entry: entry[1][0] != PUT_TOGETHER):
        chosen = np.flatnonzero(packing.colour == number)
        if not len(chosen):
            continue
        is_pale = key == PUT_TOGETHER
        colour, alpha = (look.FREE, _PALE) if is_pale else (own, _FILLED)
        source = _columns(packing, chosen, columns, labels[chosen] if len(labels) else labels)
        plot.add(
            "rectangle",
            plot.source(source),
            f"key{number}",
            colour=colour,
            alpha=alpha,
            width=0.5,
            hover=hover if packing.labels else hover[1:],
        )
        keys.append(Key(key, colour, f"key{number}", "hollow" if is_pale else "area"))
    return keys


def _columns(
    packing: Packing,
    chosen: NDArray[np.int64],
    rectangles: tuple[Numbers, ...],
    labels: NDArray[np.object_],
) -> dict[str, object]:
    begin, end, offset, size = (column[chosen] for column in rectangles)
    columns: dict[str, object] = {
        "left": begin.astype(np.float32),
        "right": end.astype(np.float32),
        "bottom": offset.astype(np.float32),
        "top": (offset + size).astype(np.float32),
        "size": size.astype(np.float32),
    }
    times: list[list[float | None]] = [[None] * len(chosen)] * 2
    if packing.seconds is not None:
        times = [finite(column)[chosen].tolist() for column in packing.seconds]
        columns[f"left{OTHER}"], columns[f"right{OTHER}"] = (
            np.array(time, np.float32) for time in times
        )
    for name, places, seconds in zip(("begin", "end"), (begin, end), times, strict=True):
        columns[name] = [
            place_of(place, packing.unit, time)
            for place, time in zip(places.tolist(), seconds, strict=True)
        ]
    if len(labels):
        columns["label"] = list(labels)
    return columns


def _draw_lines(plot: Plot, packing: Packing) -> list[Key]:
    height, bound = packing.height_bytes, packing.bound_bytes
    keys = []
    for at, name, colour, dash, label in (
        (height, "height", look.RESERVED, (), packing.height_name),
        (bound, "bound", look.OUT_OF_MEMORY, (6, 4), packing.bound_name),
    ):
        if at:
            source = plot.source({"y": [at]})
            plot.add("level", source, name, colour=colour, width=2, dash=dash)
            style = "dashes" if dash else "line"
            keys.append(Key(f"{label} {format_size(at)}", colour, name, style))
    return keys


def _in_words(packing: Packing) -> str:
    text = f"{len(packing.begin):,} rectangles"
    if packing.height_bytes:
        text += f" in {format_size(packing.height_bytes)}"
    if packing.bound_bytes:
        text += f"; {packing.bound_name} {format_size(packing.bound_bytes)}"
    return f"{text}."
