"""The lives of blocks, and the blocks live at the peak: one sweep over the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gmlake.trace.layout import Kind, rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.trace.trace import Trace

    Integers = NDArray[np.int64]
    Numbers = NDArray[np.uint64]

BEFORE = -1
"""The birth of blocks live before the first event."""


@dataclass(frozen=True, eq=False)
class Lives:
    """Every block of a trace; arrays of shape (ids,), row `id` for each.

    born, died: the rows of trace.requests; BEFORE, and the number of rows for blocks never freed.
    size_bytes: as counted, rounded up to 512. let_go: the program freed it, whether or not other
    streams still use it. change, live_bytes: shape (rows,), the change by each event and the live
    bytes after it. start_bytes: the live bytes before the first.
    """

    address: Numbers
    size_bytes: Integers
    requested_bytes: Integers
    stream: Numbers
    site: Numbers
    born: Integers
    died: Integers
    let_go: NDArray[np.bool_]
    change: Integers
    live_bytes: Integers
    start_bytes: int

    def live_behind(self, row: int) -> Integers:
        """Return the ids live after a row; BEFORE: before all of them."""
        result: Integers = np.flatnonzero(
            (self.born <= row) & (self.died > row) & (self.size_bytes > 0)
        )
        return result


@dataclass(frozen=True, eq=False)
class Peak:
    """The highest point within the recorded events.

    row: the event at which it was reached; BEFORE if nothing later was higher than the start.
    time_ns: of it, 0 if unknown. live_bytes: live memory then. ids: of the blocks live then.
    earlier_bytes: the highest ever, where that was before the events that were kept, else 0.
    """

    row: int
    time_ns: int
    live_bytes: int
    ids: Integers
    earlier_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether this is the highest ever, as far as is known."""
        return self.earlier_bytes == 0


def lives_of(trace: Trace, event_sites: Numbers, start_sites: Numbers) -> Lives:
    """Return the lives of all blocks, from one sweep over the events."""
    requests, start = trace.requests, trace.start_blocks
    kind, ids = requests["kind"], requests["id"]
    allocs, frees = np.flatnonzero(kind == Kind.ALLOC), np.flatnonzero(kind == Kind.FREE)
    count, rows = trace.id_count, len(requests)
    both = np.concatenate([start["id"], ids[allocs]]).astype(np.int64)

    def by_id(before: Numbers, later: Numbers) -> Numbers:
        column = np.zeros(count, np.uint64)
        column[both] = np.concatenate([before, later])
        return column

    requested = by_id(start["requested_bytes"], requests["size_bytes"][allocs])
    size_bytes = rounded(requested).astype(np.int64)
    born, died = np.full(count, BEFORE, np.int64), np.full(count, rows, np.int64)
    born[ids[allocs]] = allocs
    died[ids[frees]] = frees
    let_go = np.zeros(count, np.bool_)
    let_go[ids[kind == Kind.FREE_REQUESTED]] = True
    change = np.zeros(rows, np.int64)
    change[allocs] = size_bytes[ids[allocs]]
    change[frees] = -size_bytes[ids[frees]]
    start_bytes = int(size_bytes[start["id"]].sum())
    return Lives(
        address=by_id(start["address"], requests["address"][allocs]),
        size_bytes=size_bytes,
        requested_bytes=requested.astype(np.int64),
        stream=by_id(start["stream"], requests["stream"][allocs]),
        site=by_id(start_sites, event_sites[allocs]),
        born=born,
        died=died,
        let_go=let_go,
        change=change,
        live_bytes=start_bytes + np.cumsum(change),
        start_bytes=start_bytes,
    )


def peak_of(lives: Lives, trace: Trace, highest_bytes: int = 0) -> Peak:
    """Find the first highest point. highest_bytes: the most that was ever live, 0 if unknown."""
    row, live_bytes = BEFORE, lives.start_bytes
    if len(lives.live_bytes):
        highest = int(np.argmax(lives.live_bytes))
        if int(lives.live_bytes[highest]) > live_bytes:
            row, live_bytes = highest, int(lives.live_bytes[highest])
    times = trace.requests["time_ns"]
    return Peak(
        row=row,
        time_ns=int(times[max(row, 0)]) if len(times) else 0,
        live_bytes=live_bytes,
        ids=lives.live_behind(row),
        earlier_bytes=highest_bytes if highest_bytes > live_bytes else 0,
    )
