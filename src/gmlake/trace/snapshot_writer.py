"""Writes a Trace as PyTorch's snapshot format: plain data that pytorch.org/memory_viz opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.trace.layout import ALIGNMENT, FINAL_BLOCK, SEGMENT, SMALL_LIMIT, Kind, Records

if TYPE_CHECKING:
    from gmlake.trace.trace import Trace

_FIRST_ADDRESS: Final = 1 << 40
_LAST_ADDRESS: Final = 1 << 53  # the viewer's numbers are doubles
_SIGN: Final = 1 << 63
_ACTIONS: Final = {
    Kind.ALLOC: "alloc",
    Kind.FREE: "free_completed",
    Kind.FREE_REQUESTED: "free_requested",
    Kind.SEGMENT_ALLOC: "segment_alloc",
    Kind.SEGMENT_FREE: "segment_free",
    Kind.OOM: "oom",
}


def write_snapshot(trace: Trace) -> dict[str, Any]:
    """Return the snapshot. TRIM and MARK have no counterpart there and are left out.

    Raises TraceError where the blocks do not fit into the addresses the format allows.
    """
    addresses = _addresses(trace)
    events: list[list[dict[str, Any]]] = [[] for _ in range(trace.device + 1)]
    events[trace.device] = _events(trace, addresses)
    return {
        "segments": _segments(trace, addresses),
        "device_traces": events,
        "allocator_settings": dict(trace.settings),
        "external_annotations": [],
    }


def _addresses(trace: Trace) -> Records:
    """Return the address of every id: as recorded, else one of its own for each."""
    addresses = np.zeros(max(trace.id_count, 1), np.uint64)
    sizes = np.zeros(max(trace.id_count, 1), np.uint64)
    allocs = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    for table, size in ((trace.start_blocks, "requested_bytes"), (allocs, "size_bytes")):
        addresses[table["id"]] = table["address"]
        sizes[table["id"]] = table[size]
    if (addresses[: trace.id_count] == 0).any():
        steps = (sizes // ALIGNMENT + 1) * ALIGNMENT
        addresses = np.cumsum(steps) - steps + _FIRST_ADDRESS
        if int(steps.sum(dtype=np.float64)) + _FIRST_ADDRESS > _LAST_ADDRESS:
            reason = "the allocations together need more addresses than a snapshot can name"
            raise TraceError(reason)
    return addresses


def _events(trace: Trace, addresses: Records) -> list[dict[str, Any]]:
    events = []
    for number, size, address, time, stream, kind, _ in trace.requests.tolist():
        if kind not in _ACTIONS:
            continue
        event: dict[str, Any] = {"action": _ACTIONS[kind]}
        if kind == Kind.OOM:
            event["device_free"] = address
        elif kind in (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE):
            event["addr"] = address
        else:
            event["addr"] = int(addresses[number])
        event.update(size=size, stream=_signed(stream), time_us=time // 1000, frames=[])
        events.append(event)
    return events


def _signed(stream: int) -> int:
    return stream - 2 * _SIGN if stream >= _SIGN else stream


def _segments(trace: Trace, addresses: Records) -> list[dict[str, Any]]:
    segments, blocks = trace.final_segments, trace.final_blocks
    if not len(segments):
        segments, blocks = _survivors(trace, addresses)
    result = []
    for segment in segments.tolist():
        address, size, stream, owner, number, is_small = segment
        first, last = np.searchsorted(blocks["address"], [address, address + size])
        inside = blocks[first:last].tolist()
        used = [block for block in inside if block[3]]
        result.append(
            {
                "device": trace.device,
                "address": address,
                "total_size": size,
                "allocated_size": sum(block[1] for block in used),
                "active_size": sum(block[1] for block in used),
                "requested_size": sum(block[2] for block in used),
                "stream": _signed(stream),
                "segment_type": "small" if is_small else "large",
                "segment_pool_id": (owner, number),
                "is_expandable": trace.is_expandable,
                "frames": [],
                "blocks": [_block(*block) for block in inside],
            }
        )
    return result


def _block(address: int, size: int, requested: int, is_used: bool) -> dict[str, Any]:  # noqa: FBT001 (a column)
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": "active_allocated" if is_used else "inactive",
        "frames": [],
    }


def _survivors(trace: Trace, addresses: Records) -> tuple[Records, Records]:
    """Give each block that is live at the end a segment of its own, where none was recorded."""
    allocs = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    frees = trace.requests["id"][trace.requests["kind"] == Kind.FREE]
    sizes = np.zeros(max(trace.id_count, 1), np.uint64)
    streams = np.zeros(max(trace.id_count, 1), np.uint64)
    is_live = np.zeros(max(trace.id_count, 1), np.bool_)
    for table, size in ((trace.start_blocks, "requested_bytes"), (allocs, "size_bytes")):
        sizes[table["id"]] = table[size]
        streams[table["id"]] = table["stream"]
        is_live[table["id"]] = True
    is_live[frees] = False
    ids = np.flatnonzero(is_live & (sizes > 0))
    ids = ids[np.argsort(addresses[ids])]
    segments, blocks = np.zeros(len(ids), SEGMENT), np.zeros(len(ids), FINAL_BLOCK)
    segments["address"] = blocks["address"] = addresses[ids]
    held = (sizes[ids] + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
    segments["size_bytes"] = blocks["block_bytes"] = held
    segments["stream"] = streams[ids]
    segments["is_small"] = sizes[ids] <= SMALL_LIMIT
    blocks["requested_bytes"] = sizes[ids]
    blocks["is_used"] = True
    return segments, blocks
