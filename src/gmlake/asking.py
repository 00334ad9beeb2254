"""What a recorded program asked of PyTorch's allocator, worked out from what the allocator did.

A trace tells what became of each request; to put the same requests to a policy, three things have
to be found again:

- what was refused: it is asked for once more, and should be refused;
- where the cache was emptied by a call that no notes name. A library may do so from C++, as
  cudnn.benchmark does after trying its algorithms. What such a call gave back stands in the trace;
- which frees waited for another stream until a request ran out of memory: PyTorch looks for a free
  block first, and waits for those only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.trace.layout import REQUEST, SMALL_LIMIT, SMALL_SEGMENT, Kind, Records

if TYPE_CHECKING:
    from gmlake.trace import Trace
    from gmlake.validation import Notes

LATE: Final = 1
"""GML_REQUEST_LATE of gmlake.h: this free waits until the next allocation runs out of memory."""

_EVENTS_OF_ALLOC: Final = {Kind.FREE, Kind.SEGMENT_FREE, Kind.SEGMENT_ALLOC}
GRANULE_BYTES: Final = 20 << 20
"""By which expandable segments for large requests grow."""

_LARGE_SEGMENT: Final = 20 << 20
_LARGE_REQUEST: Final = 10 << 20
_SEGMENT_GRAIN: Final = 2 << 20


def requests_of(trace: Trace, notes: Notes | None) -> Records:
    """Return the requests of a trace; without notes, what was refused is not among them."""
    if notes is None:
        return trace.requests_with_trims()
    requests = _with_refusals(trace)
    noted = _noted_runs(requests, notes)
    needed = _needed_rows(trace, requests, notes, noted)
    is_late = requests["kind"][needed] == Kind.FREE
    requests["reserved"][needed[is_late]] = LATE
    explained = noted.union(needed.tolist())
    places = [row for row in _first_of_runs(requests).tolist() if row not in explained]
    trims = np.zeros(len(places), REQUEST)
    trims["kind"] = Kind.TRIM
    return np.insert(requests, places, trims)


def recorded_bytes(trace: Trace, requests: Records) -> Records:
    """Return what PyTorch had reserved before each of the requests, and after the last."""
    kind, sizes = requests["kind"], requests["size_bytes"].astype(np.int64)
    change = np.where(kind == Kind.SEGMENT_ALLOC, sizes, 0)
    change -= np.where(kind == Kind.SEGMENT_FREE, sizes, 0)
    start = int(trace.start_segments["size_bytes"].sum())
    held: Records = start + np.cumsum(np.concatenate([[0], change]))
    return held


def rows_before(requests: Records, events: int) -> int:
    """Return how many rows the first `events` recorded events take, marks and trims between."""
    if events == 0:
        return 0
    kind = requests["kind"]
    recorded = np.flatnonzero((kind != Kind.MARK) & (kind != Kind.TRIM))
    return int(recorded[events - 1]) + 1 if events <= len(recorded) else len(requests)


def end_of_awaited_frees(requests: Records, row: int) -> int:
    """Return where the frees end that a call of empty_cache before `row` waited for first."""
    while row < len(requests) and requests["kind"][row] == Kind.FREE:
        row += 1
    return row


def _with_refusals(trace: Trace) -> Records:
    """Return the events with an allocation, of an id of its own, for each that was refused."""
    requests: Records = trace.requests.copy()
    refused = np.flatnonzero(requests["kind"] == Kind.OOM)
    requests["kind"][refused] = Kind.ALLOC
    requests["address"][refused] = 0
    requests["id"][refused] = trace.id_count + np.arange(len(refused))
    return requests


def _segment_bytes(size_bytes: int) -> int:
    """Return what PyTorch's limit on its memory must have room for, to serve a request."""
    if size_bytes <= SMALL_LIMIT:
        return SMALL_SEGMENT
    if size_bytes < _LARGE_REQUEST:
        return _LARGE_SEGMENT
    return -(-size_bytes // _SEGMENT_GRAIN) * _SEGMENT_GRAIN


def _granules_bytes(size_bytes: int) -> int:
    """Return what an expandable segment maps for a request where nothing is mapped yet."""
    granule_bytes = SMALL_SEGMENT if size_bytes <= SMALL_LIMIT else GRANULE_BYTES
    return -(-size_bytes // granule_bytes) * granule_bytes


def _first_of_runs(requests: Records) -> Records:
    """Return the rows where segments begin to go back."""
    is_free = requests["kind"] == Kind.SEGMENT_FREE
    first: Records = np.flatnonzero(is_free & ~np.concatenate([[False], is_free[:-1]]))
    return first


def _noted_runs(requests: Records, notes: Notes) -> set[int]:
    """Return the first rows of what noted calls of empty_cache gave back."""
    return {
        end_of_awaited_frees(requests, rows_before(requests, reading.events))
        for reading in notes.readings
        if reading.is_trim
    }


def _needed_rows(trace: Trace, requests: Records, notes: Notes, noted: set[int]) -> Records:
    """Return the rows of all that allocations did because they ran out of memory."""
    reserved = recorded_bytes(trace, requests)
    kind = requests["kind"].tolist()
    bounds = {rows_before(requests, reading.events) for reading in notes.readings}
    needed: list[int] = []
    for row in np.flatnonzero(requests["kind"] == Kind.ALLOC).tolist():
        begin = _begin_of_events(kind, row, noted, bounds)
        events, held_bytes = requests[begin : row + 1], int(reserved[begin])
        was_refused = requests["address"][row] == 0
        if was_refused or _ran_short(events, held_bytes, notes, is_expandable=trace.is_expandable):
            needed += range(begin, row)
    return np.array(needed, np.int64)


def _begin_of_events(kind: list[int], row: int, noted: set[int], bounds: set[int]) -> int:
    """Return where the events of the allocation in `row` begin: segments, and frees it waited for.

    Frees that were complete before may be among them: no block was found with their memory, so
    none will be found without it. What lies before a reading or belongs to a noted call does not.
    """
    first = row
    while first > 0 and first not in bounds and kind[first - 1] in _EVENTS_OF_ALLOC:
        if first - 1 in noted:
            return row
        first -= 1
    return first


def _ran_short(events: Records, reserved_bytes: int, notes: Notes, *, is_expandable: bool) -> bool:
    """Tell whether the allocation at the end of `events` had no room before segments went back.

    What went back can make room that had to be mapped before, so the most that an expandable
    segment can need is what counts.
    """
    gave_back = np.flatnonzero(events["kind"] == Kind.SEGMENT_FREE)
    if not len(gave_back):
        return False
    sizes, is_taken = events["size_bytes"], events["kind"] == Kind.SEGMENT_ALLOC
    is_first = np.arange(len(events)) < gave_back[0]
    held_bytes = reserved_bytes + int(sizes[is_taken & is_first].sum())
    taken_bytes = int(sizes[is_taken & ~is_first].sum())
    if is_expandable:
        taken_bytes = max(taken_bytes, _granules_bytes(int(sizes[-1])))
    limit = notes.limit_bytes
    is_over_limit = limit is not None and held_bytes + _segment_bytes(int(sizes[-1])) > limit
    return held_bytes + taken_bytes > notes.capacity_bytes or is_over_limit
