"""Copies lakes as PyTorch's snapshots: their memory, the events that they kept, gmlake's part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.snapshots import beside
from gmlake.snapshots.writing import signed
from gmlake.trace.layout import REQUEST, Kind

if TYPE_CHECKING:
    from gmlake import _core

    Entry = dict[str, Any]

_TRIES: Final = 4
_COUNTED: Final = ("allocations", "frees")
_ACTIONS: Final = {
    Kind.ALLOC: "alloc",
    Kind.FREE: "free_completed",
    Kind.FREE_REQUESTED: "free_requested",
    Kind.SEGMENT_ALLOC: "segment_map",
    Kind.SEGMENT_FREE: "segment_unmap",
    Kind.OOM: "oom",
}


def document_of(lake: _core.Lake, device: int) -> Entry:
    """Copy a lake's memory and the events that it kept, of one moment.

    A program that never stops meanwhile gets the last try, whose events may be later.
    """
    for _ in range(_TRIES):
        before = lake.stats()
        spans = lake.spans()
        raw, _ = lake.history()
        counters = lake.stats()
        if all(before[name] == counters[name] for name in _COUNTED):
            break
    traces: list[list[Entry]] = [[] for _ in range(device)]
    return {
        "segments": [one for span in spans for one in _segments(span, device)],
        "device_traces": [*traces, list(_events(raw))],
        beside.KEY: beside.together([part_of(device, [lake], counters)]),
    }


def part_of(
    device: int, lakes: Iterable[_core.Lake], counters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return gmlake's part about a device with these lakes."""
    spans = [span for lake in lakes for span in lake.spans() if span["kind"] == "view"]
    pairs = [pair for lake in lakes for pair in lake.stream_pairs()]
    return {
        "device": device,
        "counters": counters,
        "stream_pairs": [dict(pair) for pair in pairs],
        "views": [[span["address"], span["size"]] for span in spans],
        "pieces": [list(piece) for span in spans for piece in span["pieces"]],
    }


def _segments(span: _core.Span, device: int) -> Iterator[Entry]:
    """Yield the runs of a span; memory lent to views, and views without blocks, are left out."""
    is_used = any(used for _, _, _, used in span["ranges"])
    runs: list[list[Entry]] = [[]]
    for address, size, requested, used in span["ranges"]:
        if (used and not requested) or (span["kind"] == "view" and not is_used):
            runs.append([])
            continue
        state = "active_allocated" if used else "inactive"
        block = {"address": address, "size": size, "requested_size": requested if used else 0}
        runs[-1].append({**block, "state": state, "frames": []})
    for blocks in filter(None, runs):
        yield {
            "device": device,
            "address": blocks[0]["address"],
            "total_size": sum(block["size"] for block in blocks),
            "stream": signed(span["stream"]),
            "segment_type": "small" if span["is_small"] else "large",
            "segment_pool_id": tuple(span["pool"]),
            "is_expandable": span["kind"] != "segment",
            "blocks": blocks,
        }


def _events(raw: bytes) -> Iterator[Entry]:
    """Yield the events of a history; blocks of 0 bytes have no address."""
    for _, size, address, time, stream, kind, _ in np.frombuffer(raw, REQUEST).tolist():
        action = _ACTIONS.get(kind)
        if action and size:
            yield {
                "action": action,
                "device_free" if kind == Kind.OOM else "addr": address,
                "size": size,
                "stream": signed(stream),
                "time_us": time // 1000,
            }
