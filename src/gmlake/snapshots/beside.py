"""What gmlake alone knows, beside PyTorch's data in a snapshot: under the key "gmlake".

For each device: the counters of its lake and how the device is divided, the pairs of streams of
which one waited for the other, and the stitched views with the places of their memory. PyTorch's
segments have each byte once: those of a view that holds blocks at the view's address, all others
where they lie. Every part may be wrong, or hostile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.snapshots import entries
from gmlake.snapshots.entries import Visits
from gmlake.snapshots.model import PIECE, UNKNOWN, DeviceSnapshot
from gmlake.snapshots.traces import of_trace
from gmlake.trace.layout import LARGEST_SIZE, RANGE, REQUEST, SPAN, Records, SpanKind
from gmlake.trace.trace import Trace

KEY: Final = "gmlake"
VERSION: Final = 3

_LONGEST_TEXT: Final = 400
_MOST_COUNTERS: Final = 1000
_HIGHEST_COUNT: Final = 1 << 62  # so that sums with sizes stay below 2^63
_GROUPS: Final = ("states", "driver_calls", "driver_call_ns")
"""The counters that have names of their own."""


def of_snapshot(seen: DeviceSnapshot) -> dict[str, Any]:
    """Return the part about a device."""
    return {
        "device": seen.device,
        "counters": seen.counters,
        "stream_pairs": seen.stream_pairs,
        "views": [list(row) for row in seen.views[["address", "size_bytes"]].tolist()],
        "pieces": [list(row)[:3] for row in seen.pieces.tolist()],
    }


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is stored under KEY."""
    return {"version": VERSION, "devices": parts}


def apply(
    devices: Iterable[DeviceSnapshot], raw: object, left: Visits
) -> tuple[DeviceSnapshot, ...]:
    """Return the devices with what is stored under KEY. Raises TraceError.

    A device that has a lake, and neither memory nor events now, is one of them.
    """
    beside = entries.entry_of(raw, repr(KEY))
    if beside.get("version") != VERSION:
        raise TraceError(
            f"written by another version of gmlake ({entries.show(beside.get('version'))})"
        )
    known = {seen.device: seen for seen in devices}
    told: set[int] = set()
    for index, part in enumerate(entries.list_of(beside.get("devices", []), "'devices'")):
        entry = entries.entry_of(part, f"device {index} of gmlake's part")
        number = entries.integer(entry, "device", "gmlake's part", low=0, high=entries.MOST_DEVICES)
        if number in told:
            raise TraceError(f"gmlake's part has device {number} twice")
        told.add(number)
        if number not in known:
            known[number] = of_trace(Trace(np.zeros(0, REQUEST), device=number))
        seen = known[number]
        seen.counters = _counters(entry.get("counters", {}))
        seen.stream_pairs = _stream_pairs(entry, left)
        _place_views(seen, _table(entry, "views", 2, left), _table(entry, "pieces", 3, left))
    return tuple(known[number] for number in sorted(known))


def _place_views(seen: DeviceSnapshot, views: Records, pieces: Records) -> None:
    """Tell the views from other segments, and add the memory that lies in them."""
    spans = seen.spans
    if seen.trace.is_expandable:
        spans["kind"] = SpanKind.BASE
    sizes = dict(views.tolist())
    is_view = np.array(
        [sizes.get(begin) == size for begin, size in spans[["address", "size_bytes"]].tolist()],
        np.bool_,
    )
    spans["kind"][is_view] = SpanKind.VIEW
    numbers = np.flatnonzero(is_view)
    place = np.searchsorted(spans["address"][numbers], pieces[:, 0], side="right") - 1
    is_live = place >= 0
    of_piece = numbers[np.maximum(place, 0)] if len(numbers) else np.zeros(len(pieces), np.int64)
    ends = (spans["address"] + spans["size_bytes"])[of_piece] if len(spans) else pieces[:, 0]
    is_live &= pieces[:, 0] + pieces[:, 2] <= ends  # the others are of views without blocks
    pieces, of_piece = pieces[is_live], of_piece[is_live]
    lent = np.zeros(len(pieces), SPAN)
    for name in ("stream", "pool_owner", "pool_number", "is_small"):
        lent[name] = spans[name][of_piece]
    lent["address"], lent["size_bytes"], lent["kind"] = pieces[:, 1], pieces[:, 2], SpanKind.BASE
    ranges = np.zeros(len(pieces), RANGE)
    ranges["address"], ranges["size_bytes"], ranges["is_used"] = pieces[:, 1], pieces[:, 2], True
    ranges["category"], ranges["span"] = UNKNOWN, len(spans) + np.arange(len(pieces))
    placed = np.zeros(len(pieces), PIECE)
    placed["address"], placed["base_address"], placed["size_bytes"] = pieces.T
    placed["span"] = of_piece
    every = np.concatenate([spans, lent])
    order = np.argsort(every["address"], kind="stable")
    rank = np.empty(len(order), np.uint32)
    rank[order] = np.arange(len(order))
    parts = np.concatenate([seen.ranges, ranges])
    parts["span"], placed["span"] = rank[parts["span"]], rank[placed["span"]]
    seen.trace.spans = every[order]
    seen.trace.ranges = parts[np.argsort(parts["address"], kind="stable")]
    seen.pieces = placed[np.argsort(placed["address"], kind="stable")]
    begins, ends = seen.spans["address"], seen.spans["address"] + seen.spans["size_bytes"]
    if (begins[1:] < ends[:-1]).any():
        raise TraceError("gmlake's part has memory of a view that lies in another segment, too")


def _table(entry: dict[Any, Any], name: str, columns: int, left: Visits) -> Records:
    rows = entries.list_of(entry.get(name, []), repr(name))
    left.spend(len(rows) * columns)
    row_type = np.dtype([(str(number), "<u8") for number in range(columns)])
    try:
        found = np.array([tuple(row) for row in rows], row_type)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        raise TraceError(f"{name!r} is not a table of {columns} numbers a row") from None
    table = found.view(np.uint64).reshape(len(rows), columns)
    if (table[:, -1] > LARGEST_SIZE).any() or (table[:, :-1] >= 1 << 63).any():
        raise TraceError(f"{name!r} has memory outside any device's addresses")
    return table


def _stream_pairs(entry: dict[Any, Any], left: Visits) -> list[dict[str, int]]:
    pairs = []
    for raw in entries.list_of(entry.get("stream_pairs", []), "pairs"):
        left.spend(1 + len(entries.entry_of(raw, "a pair")))
        pairs.append(dict(_counts(raw, (1 << 64) - 1)))
    return pairs


def _counters(raw: object) -> dict[str, Any]:
    """Keep whole numbers, and one level of named ones where a lake has them."""
    entry = entries.entry_of(raw, "'counters'")
    kept: dict[str, Any] = dict(_counts(entry, _HIGHEST_COUNT))
    for name in _GROUPS:
        if type(entry.get(name)) is dict:
            kept[name] = dict(_counts(entry[name], _HIGHEST_COUNT))
        else:
            kept.pop(name, None)
    return kept


def _counts(entry: object, highest: int) -> Iterator[tuple[str, int]]:
    for name, value in list(entries.entry_of(entry, "counters").items())[:_MOST_COUNTERS]:
        if type(name) is str and type(value) is int and 0 <= value <= highest:
            yield name[:_LONGEST_TEXT], value
