"""A recorded trace as a snapshot: its final state, and all its events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.snapshots.model import UNKNOWN, DeviceSnapshot
from gmlake.snapshots.pools import NO_POOL
from gmlake.trace.layout import (
    ALIGNMENT,
    LARGEST_SIZE,
    RANGE,
    SMALL_LIMIT,
    SPAN,
    Kind,
    Records,
    SpanKind,
)

if TYPE_CHECKING:
    from gmlake.trace.trace import Trace

_MOST_BYTES: Final = 1 << 61
"""All sizes of a trace together: sums of them must not overflow."""

_FIRST_ADDRESS: Final = 1 << 40
_LAST_ADDRESS: Final = 1 << 53  # the viewer's numbers are doubles


def check(trace: Trace) -> None:
    """Raise TraceError for a trace that contradicts itself, or has impossible sizes."""
    trace.check()
    is_served = trace.requests["kind"] != Kind.OOM
    total = trace.requests["size_bytes"][is_served].sum(dtype=np.float64)
    if total + trace.start_blocks["requested_bytes"].sum(dtype=np.float64) > _MOST_BYTES:
        raise TraceError("the sizes of its events add up to more than 2^61 bytes")


def _check_ranges(spans: Records, ranges: Records) -> None:
    """Raise TraceError unless blocks are inside of their segments, and next to each other."""
    around = spans[ranges["span"]]
    before = ranges["address"] - around["address"]
    is_inside = (before <= around["size_bytes"]) & (
        ranges["size_bytes"] <= around["size_bytes"] - before
    )
    if (spans["size_bytes"] > LARGEST_SIZE).any() or not is_inside.all():
        raise TraceError("a block at the end lies outside its segment, or that is too large")
    by_address = ranges[np.argsort(ranges["address"], kind="stable")]
    ends = by_address["address"] + by_address["size_bytes"]
    if (by_address["address"][1:] < ends[:-1]).any():
        raise TraceError("two blocks at the end overlap")


def of_trace(trace: Trace) -> DeviceSnapshot:
    """Return a trace as a snapshot of its device. Raises TraceError if it contradicts itself."""
    check(trace)
    spans, ranges = trace.spans, trace.ranges
    spans["kind"] = SpanKind.SEGMENT
    # A block of 0 bytes would be read as lent to a view.
    is_empty = ranges["is_used"] & (ranges["requested_bytes"] == 0)
    ranges["requested_bytes"][is_empty] = ranges["size_bytes"][is_empty]
    ranges["category"] = UNKNOWN
    place = np.searchsorted(spans["address"], ranges["address"], side="right").astype(int) - 1
    ranges["span"] = np.maximum(place, 0)
    trace.ranges = ranges = ranges[place >= 0]
    _check_ranges(spans, ranges)
    kind = trace.requests["kind"]
    return DeviceSnapshot(
        device=trace.device,
        trace=trace,
        event_sites=np.zeros(len(trace.requests), np.uint64),
        start_sites=np.zeros(len(trace.start_blocks), np.uint64),
        categories=np.full(trace.id_count, UNKNOWN, np.int8),
        has_reserved_events=bool(
            np.isin(kind, (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)).any() or len(spans)
        ),
    )


def with_addresses(trace: Trace) -> Trace:
    """Give each block an address, and each final block a segment, if none were recorded.

    Raises TraceError if there are too many blocks for that.
    """
    trace.check()
    kind, ids = trace.requests["kind"], trace.requests["id"]
    addresses, sizes, streams = np.zeros((3, trace.id_count), np.uint64)
    allocs = trace.requests[kind == Kind.ALLOC]
    for table, size in ((trace.start_blocks, "requested_bytes"), (allocs, "size_bytes")):
        addresses[table["id"]], sizes[table["id"]] = table["address"], table[size]
        streams[table["id"]] = table["stream"]
    requests, start = trace.requests.copy(), trace.start_blocks.copy()
    is_recorded = bool((addresses[sizes > 0] > 0).all())
    if not is_recorded:
        steps = (sizes // ALIGNMENT + 1) * ALIGNMENT
        if int(steps.sum(dtype=np.float64)) + _FIRST_ADDRESS > _LAST_ADDRESS:
            raise TraceError(
                "the allocations together need more addresses than a snapshot can name"
            )
        addresses = np.cumsum(steps) - steps + np.uint64(_FIRST_ADDRESS)
        has_id = np.isin(kind, (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED))
        requests["address"][has_id] = addresses[ids[has_id]]
        start["address"] = addresses[start["id"]]
        start = start[np.argsort(start["address"], kind="stable")]
    spans, ranges = trace.spans, trace.ranges
    if not is_recorded or not len(spans):
        is_live = sizes > 0
        is_live[ids[kind == Kind.FREE]] = False
        live = np.flatnonzero(is_live)
        live = live[np.argsort(addresses[live], kind="stable")]
        spans, ranges = _span_each(addresses[live], sizes[live], streams[live])
        owners = np.array([NO_POOL, *trace.pools], np.uint64)[trace.block_pools[live]]
        spans["pool_owner"], spans["pool_number"] = owners[:, 0], owners[:, 1]
    return replace(
        trace,
        requests=requests,
        start_blocks=start,
        spans=spans,
        ranges=ranges,
    )


def _span_each(addresses: Records, sizes: Records, streams: Records) -> tuple[Records, Records]:
    """Return a span around each block, and the blocks."""
    spans, ranges = np.zeros(len(sizes), SPAN), np.zeros(len(sizes), RANGE)
    spans["address"] = ranges["address"] = addresses
    held = (sizes + np.uint64(ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    spans["size_bytes"] = ranges["size_bytes"] = held
    spans["stream"] = streams
    spans["is_small"] = sizes <= SMALL_LIMIT
    ranges["requested_bytes"] = sizes
    ranges["is_used"] = True
    return spans, ranges
