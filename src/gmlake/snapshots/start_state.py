"""What was live before recording began: numbered, placed, and as large as can be told.

A snapshot gives the requested size of such a block, not what the allocator held for it. The large
pool leaves up to 1 MiB that it did not split off at the end of a block; two facts show it: no free
range of the large pool is ever that small, and an allocation takes the beginning of a free range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gmlake.errors import TraceError
from gmlake.trace.layout import ALIGNMENT, SMALL_LIMIT, START_BLOCK, Kind, Records

if TYPE_CHECKING:
    from gmlake.trace.trace import Trace

_MIB = 1 << 20
_LARGEST_INTERVAL = 15


@dataclass(frozen=True)
class StartBlock:
    """A block as found; block_bytes is 0 where the file does not tell it."""

    address: int
    requested_bytes: int
    stream: int
    block_bytes: int


def place_start_blocks(
    found: list[StartBlock], settings: dict[str, Any]
) -> tuple[Records, Records]:
    """Return the rank of each block in address order, and the START_BLOCK table in that order.

    The rank is the block's id. Raises TraceError if two blocks overlap.
    """
    order = sorted(range(len(found)), key=lambda index: found[index].address)
    rank = np.zeros(len(found), np.int64)
    rank[order] = np.arange(len(found))
    table = np.zeros(len(found), START_BLOCK)
    end = 0
    for number, index in enumerate(order):
        block = found[index]
        if block.address < end:
            reason = f"two blocks that were live before recording overlap at {block.address:#x}"
            raise TraceError(reason)
        held = block.block_bytes or round_size(block.requested_bytes, settings)
        end = block.address + block.requested_bytes
        table[number] = (number, block.address, held, block.requested_bytes, block.stream)
    return rank, table


def round_size(size_bytes: int, settings: dict[str, Any]) -> int:
    """Round as PyTorch does: to 512, or to a fraction of a power of two where it is set so."""
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, dict) and size_bytes > ALIGNMENT:
        interval = min(max(size_bytes // _MIB, 1).bit_length() - 1, _LARGEST_INTERVAL)
        count = divisions.get(str(1 << interval), 0)
        if type(count) is int and count > 1 and size_bytes > ALIGNMENT * count:
            floor = 1 << (size_bytes.bit_length() - 1)
            step = floor // count
            if floor != size_bytes and step > 0:
                return -(-(size_bytes) // step) * step
    return max(ALIGNMENT, -(-size_bytes // ALIGNMENT) * ALIGNMENT)


def deduce_block_sizes(trace: Trace) -> None:
    """Enlarge start blocks of the large pool by the slack that the events betray."""
    blocks, segments = trace.start_blocks, trace.start_segments
    if not len(blocks) or not len(segments):
        return
    ends = blocks["address"] + blocks["block_bytes"]
    home = np.searchsorted(segments["address"], blocks["address"], side="right").astype(int) - 1
    inside = home >= 0
    limit = (segments["address"] + segments["size_bytes"])[np.maximum(home, 0)]
    following = np.append(blocks["address"][1:], np.uint64(2**64 - 1))
    limit = np.minimum(limit, following)
    gap = np.where(limit > ends, limit - ends, 0)
    too_long = inside & (ends > limit) & (limit > blocks["address"])
    blocks["block_bytes"] -= np.where(too_long, ends - limit, 0).astype(np.uint64)
    is_large = inside & ~segments["is_small"][np.maximum(home, 0)]
    first = _first_arrivals(trace, ends, gap)
    slack = np.where(gap <= SMALL_LIMIT, gap, first)
    blocks["block_bytes"] += np.where(is_large, slack, 0).astype(np.uint64)


def _first_arrivals(trace: Trace, ends: Records, gap: Records) -> Records:
    """For each block: how far behind it the first allocation in the gap began, if that is slack.

    0 where nothing was allocated there before the block itself was freed, or where the distance is
    too large to be slack.
    """
    kind, ids = trace.requests["kind"], trace.requests["id"]
    allocs = np.flatnonzero(kind == Kind.ALLOC)
    frees = np.flatnonzero((kind == Kind.FREE) & (ids < len(ends)))
    freed_at = np.full(len(ends), len(kind), np.int64)
    freed_at[ids[frees]] = frees
    addresses = trace.requests["address"][allocs]
    before = np.searchsorted(ends, addresses, side="right").astype(int) - 1
    block = np.maximum(before, 0)
    distance = addresses - ends[block]
    arrives = (before >= 0) & (distance < gap[block]) & (allocs < freed_at[block])
    owners, first = np.unique(block[arrives], return_index=True)
    slack = np.zeros(len(ends), np.uint64)
    slack[owners] = distance[arrives][first]
    slack[slack > SMALL_LIMIT] = 0
    return slack
