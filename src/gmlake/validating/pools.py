"""Removes the memory of PyTorch's private pools (CUDA graphs and MemPool) from a trace.

The events of a trace name no pool, but its final segments do. So the contents of those are known
from their allocation on, while segments that a private pool released earlier cannot be recognized.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gmlake.trace.layout import Kind, Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gmlake.trace import Trace


@dataclass(frozen=True)
class Public:
    """A trace without its private pools, and how much was left out.

    allocations: left out, of those in the recording; segments: left out, of those at its end.
    """

    trace: Trace
    allocations: int = 0
    segments: int = 0


def without_private_pools(trace: Trace) -> Public:
    """Return the trace without the contents of segments that end in a private pool."""
    is_private = _is_private(trace.final_segments)
    if not is_private.any():
        return Public(trace)
    rows = np.zeros(len(trace.requests), np.bool_)
    for begin, end, birth in _ranges(trace, trace.final_segments[is_private]):
        address = trace.requests["address"]
        inside = (address >= begin) & (address < end)
        rows |= inside & (np.arange(len(rows)) >= birth)
    kind = trace.requests["kind"]
    has_id = np.isin(kind, (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED))
    is_segment = np.isin(kind, (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE))
    at_start = _inside(trace.start_blocks["address"], trace.start_segments)
    ids = np.zeros(trace.id_count, np.bool_)
    ids[trace.requests["id"][rows & (kind == Kind.ALLOC)]] = True
    ids[trace.start_blocks["id"][at_start]] = True
    left_out = (rows & is_segment) | (has_id & ids[np.where(has_id, trace.requests["id"], 0)])
    public = replace(
        trace,
        requests=trace.requests[~left_out],
        start_blocks=trace.start_blocks[~at_start],
        start_segments=trace.start_segments[~_is_private(trace.start_segments)],
        final_segments=trace.final_segments[~is_private],
        final_blocks=trace.final_blocks[
            ~_inside(trace.final_blocks["address"], trace.final_segments)
        ],
    )
    _renumber(public, np.cumsum(~ids) - 1)
    allocations = int(np.count_nonzero(left_out & (kind == Kind.ALLOC)))
    return Public(public, allocations, int(np.count_nonzero(is_private)))


def _is_private(segments: Records) -> Records:
    result: Records = (segments["pool_owner"] != 0) | (segments["pool_number"] != 0)
    return result


def _inside(addresses: Records, segments: Records) -> Records:
    """Return which addresses lie in a private one of the sorted segments."""
    base = np.searchsorted(segments["address"], addresses, side="right").astype(int) - 1
    is_private = np.append(_is_private(segments), np.False_)
    return np.asarray(is_private[base])


def _ranges(trace: Trace, segments: Records) -> Iterator[tuple[int, int, int]]:
    """Yield the addresses of private segments, and the row from which they exist."""
    if not trace.is_expandable:
        for row in segments.tolist():
            address, size, *_ = row
            is_birth = (trace.requests["kind"] == Kind.SEGMENT_ALLOC) & (
                trace.requests["address"] == address
            )
            births = np.flatnonzero(is_birth)
            yield address, address + size, int(births[-1]) if len(births) else 0
        return
    lanes: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for address, size, *lane in segments.tolist():
        lanes.setdefault(tuple(lane), []).append((address, address + size))
    for parts in lanes.values():
        begin, end = min(parts)[0], max(parts)[1]
        yield begin, end, _first_mapped(trace, begin, end, sum(b - a for a, b in parts))


def _first_mapped(trace: Trace, begin: int, end: int, held_bytes: int) -> int:
    """Return the row from which part of a range was always mapped."""
    kind, address = trace.requests["kind"], trace.requests["address"]
    is_segment = np.isin(kind, (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE))
    for row in np.flatnonzero(is_segment & (address >= begin) & (address < end))[::-1].tolist():
        size = int(trace.requests["size_bytes"][row])
        held_bytes += size if kind[row] == Kind.SEGMENT_FREE else -size
        if held_bytes <= 0:
            return int(row)
    return 0


def _renumber(trace: Trace, numbers: Records) -> None:
    """Close the gaps between the ids that are left."""
    has_id = np.isin(trace.requests["kind"], (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED))
    trace.requests["id"][has_id] = numbers[trace.requests["id"][has_id]]
    trace.start_blocks["id"] = numbers[trace.start_blocks["id"]]
