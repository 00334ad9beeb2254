"""A trace as a problem of dynamic storage allocation: every block of it, from first to last."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.planner.plan_layout import LIFETIME, ORDERING
from gmlake.trace.layout import Kind, Records, rounded
from gmlake.trace.trace import Trace, trims_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ORDERINGS: Final = 1 << 20
"""The most orderings that a trace gets: pairs of streams times moments."""


def event_times(trace: Trace) -> NDArray[np.int64]:
    """Return the time of each row: how many allocations and frees came before it.

    Allocations of 0 bytes do not count, nor do their frees.
    """
    return np.concatenate([[0], np.cumsum(counted_events(trace))])


def counted_events(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows are allocations of at least a byte, or frees of these."""
    requests = trace.requests
    kind, ids = requests["kind"], requests["id"]
    is_alloc = (kind == Kind.ALLOC) & (requests["size_bytes"] > 0)
    has_bytes = np.zeros(max(trace.id_count, 1), np.bool_)
    has_bytes[trace.start_blocks["id"]] = trace.start_blocks["requested_bytes"] > 0
    has_bytes[ids[is_alloc]] = True
    is_free = kind == Kind.FREE
    counted: NDArray[np.bool_] = is_alloc.copy()
    counted[is_free] = has_bytes[ids[is_free]]
    return counted


def lifetimes_of(trace: Trace) -> Records:
    """Return one lifetime for each block; the tag is its id.

    Blocks that were live before recording live from time 0 on, those never freed live to the end.
    """
    requests = trace.requests
    kind = requests["kind"]
    times = event_times(trace)
    ends = np.full(max(trace.id_count, 1), times[-1] + 1, np.int64)
    frees = np.flatnonzero(kind == Kind.FREE)
    ends[requests["id"][frees]] = times[frees] + 1
    allocs = np.flatnonzero((kind == Kind.ALLOC) & (requests["size_bytes"] > 0))
    start = trace.start_blocks[trace.start_blocks["requested_bytes"] > 0]
    result = np.zeros(len(start) + len(allocs), LIFETIME)
    ids = np.concatenate([start["id"], requests["id"][allocs]])
    sizes = np.concatenate([start["requested_bytes"], requests["size_bytes"][allocs]])
    result["size_bytes"] = rounded(sizes)
    result["stream"] = np.concatenate([start["stream"], requests["stream"][allocs]])
    result["start"][len(start) :] = times[allocs] + 1
    result["end"] = ends[ids]
    result["tag"] = ids
    return result


def ordered_moments(trace: Trace) -> NDArray[np.int64]:
    """Return the rows at which the work of every stream follows that of all others.

    PyTorch released segments there, or the program emptied the cache: a plan waits for the device
    there, as cudaFree does for PyTorch's default allocator.
    """
    if len(_streams_of(trace)) < 2:  # noqa: PLR2004
        return np.zeros(0, np.int64)
    released, _ = trims_of(trace.requests)
    return np.union1d(released, np.flatnonzero(trace.requests["kind"] == Kind.TRIM))


def orderings_of(trace: Trace) -> Records:
    """Return each pair of streams at each of the ordered moments; of too many, those in between."""
    pairs = list(permutations(_streams_of(trace), 2))
    rows = ordered_moments(trace)
    most = MAX_ORDERINGS // max(len(pairs), 1)
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
    # A free before this row has the end times[row], an allocation behind it starts after that.
    result = np.zeros(len(pairs) * len(rows), ORDERING)
    result["time"] = np.repeat(event_times(trace)[rows], len(pairs))
    if len(result):
        result["before"] = np.tile(np.array([before for before, _ in pairs], np.uint64), len(rows))
        result["after"] = np.tile(np.array([after for _, after in pairs], np.uint64), len(rows))
    return result


def most_live_bytes(lifetimes: Records) -> int:
    """Return the largest sum of sizes that are live at once, on whichever streams."""
    sizes = rounded(lifetimes["size_bytes"]).astype(np.int64)
    times = np.concatenate([lifetimes["end"], lifetimes["start"]])
    changes = np.concatenate([-sizes, sizes])
    live = np.cumsum(changes[np.argsort(times, kind="stable")])  # ends before starts
    return int(live.max(initial=0))


def _streams_of(trace: Trace) -> list[int]:
    is_alloc = trace.requests["kind"] == Kind.ALLOC
    used = [trace.start_blocks["stream"], trace.requests["stream"][is_alloc]]
    streams: list[int] = np.unique(np.concatenate(used)).tolist()
    return streams
