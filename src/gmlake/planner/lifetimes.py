"""A trace as a problem of dynamic storage allocation: every block of it, from first to last."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.planner.plan_layout import LIFETIME, ORDERING
from gmlake.trace.layout import Kind, rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.trace.layout import Records
    from gmlake.trace.trace import Trace

MAX_ORDERINGS: Final = 1 << 20
"""The most orderings; a trace of so many streams that it would have more gets none."""


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


def orderings_of(trace: Trace) -> Records:
    """Return where the trace shows that one stream's work follows another's.

    The only such events are segments that PyTorch released with cudaFree, which waits for the work
    of all streams of the device. Expandable segments are unmapped after a wait for one stream,
    which orders nothing.
    """
    kind = trace.requests["kind"]
    streams = np.unique(
        np.concatenate([trace.start_blocks["stream"], trace.requests["stream"][kind == Kind.ALLOC]])
    ).tolist()
    is_free = kind == Kind.SEGMENT_FREE
    rows = np.flatnonzero(is_free & ~np.concatenate([[False], is_free[:-1]]))
    pairs = list(permutations(streams, 2)) if len(streams) ** 2 < MAX_ORDERINGS else []
    if trace.is_expandable or len(pairs) * len(rows) > MAX_ORDERINGS:
        return np.zeros(0, ORDERING)
    # A free before this row has the end times[row], an allocation behind it starts after that.
    result = np.zeros(len(pairs) * len(rows), ORDERING)
    result["time"] = np.repeat(event_times(trace)[rows], len(pairs))
    if pairs:
        result["before"] = np.tile(np.array([before for before, _ in pairs], np.uint64), len(rows))
        result["after"] = np.tile(np.array([after for _, after in pairs], np.uint64), len(rows))
    return result
