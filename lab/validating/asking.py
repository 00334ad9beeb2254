"""Derives a program's requests to PyTorch's allocator from the recorded actions of the allocator.

A trace records the outcome of each request. To make the same requests to a policy, three things
have to be derived:

- refused requests: they are repeated, and should be refused;
- where the cache was emptied by a call that is not in the notes. A library may do so from C++, as
  cudnn.benchmark does after trying its algorithms. The trace contains the segments that such a call
  released, and also those that PyTorch released by itself, when a request found no room;
- which frees waited for another stream until a request ran out of memory: PyTorch looks for a free
  block first, and waits for those only then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.trace.layout import REQUEST, SMALL_LIMIT, SMALL_SEGMENT, Kind, Records
from gmlake.trace.trace import trims_of
from validating.configuration import round_size

if TYPE_CHECKING:
    from gmlake.trace import Trace
    from validating.configuration import Configuration
    from validating.report import Notes

LATE: Final = 1
"""GML_REQUEST_LATE of gmlake.h: this free waits until the next allocation runs out of memory."""

_EVENTS_OF_ALLOC: Final = {Kind.FREE, Kind.SEGMENT_FREE, Kind.SEGMENT_ALLOC}


def requests_of(trace: Trace, notes: Notes | None, configuration: Configuration) -> Records:
    """Return the requests of a trace; without notes, refused ones are left out."""
    if notes is None:
        return _with_trims(trace.requests, set(oversize_runs(trace, configuration)))
    requests = _with_refusals(trace)
    noted = _noted_runs(requests, notes)
    needed = _needed_rows(_Device(trace, notes, configuration), requests, noted)
    is_late = requests["kind"][needed] == Kind.FREE
    requests["pool"][needed[is_late]] = LATE
    return _with_trims(requests, noted.union(needed.tolist()))


def _with_trims(requests: Records, explained: set[int]) -> Records:
    """Insert TRIMs wherever releases of segments begin, except at the explained rows."""
    places, pools = trims_of(requests)
    is_open = ~np.isin(places, list(explained)) | (pools > 0)
    trims = np.zeros(int(is_open.sum()), REQUEST)
    trims["kind"] = Kind.TRIM
    trims["pool"] = pools[is_open]
    return np.insert(requests, places[is_open], trims)


def oversize_runs(trace: Trace, configuration: Configuration) -> list[int]:
    """Return the rows where PyTorch released only oversize blocks, for a request without room.

    With a max_split_size it tries that before it releases everything. Without notes the trace shows
    it: the request exceeds the most memory ever held, and _is_for_request is true.
    """
    if configuration.oversize_bytes is None or trace.is_expandable:
        return []
    requests = trace.requests
    kind = requests["kind"]
    reserved = recorded_bytes(requests)
    found = []
    for first in _first_of_runs(requests).tolist():
        end = first
        while end < len(requests) and kind[end] == Kind.SEGMENT_FREE:
            end += 1
        is_followed = kind[end : end + 2].tolist() == [Kind.SEGMENT_ALLOC, Kind.ALLOC]
        if (
            is_followed
            and int(reserved[first]) + int(requests["size_bytes"][end]) > reserved.max()
            and _is_for_request(trace, configuration, requests[first:end], requests[end + 1])
        ):
            found.append(first)
    return found


def _is_for_request(
    trace: Trace, configuration: Configuration, gone: Records, request: Records
) -> bool:
    """Return whether oversize blocks were released for a request that none of them could serve.

    They are of its stream, and no more than were needed.
    """
    oversize_bytes = configuration.oversize_bytes or 0
    sizes = gone["size_bytes"].astype(np.int64)
    size_bytes = round_size(int(request["size_bytes"]), trace.settings)
    slack = sizes - size_bytes
    is_fit = (
        (slack >= 0) & (slack < configuration.most_slack_bytes) & (size_bytes >= oversize_bytes)
    )
    return bool(
        size_bytes > SMALL_LIMIT
        and (sizes >= oversize_bytes).all()
        and (gone["stream"] == request["stream"]).all()
        and sizes[:-1].sum() < max(size_bytes, oversize_bytes)
        and (size_bytes < oversize_bytes or not is_fit.any())
    )


def recorded_bytes(requests: Records) -> Records:
    """Return what PyTorch had reserved before each of the requests, and after the last."""
    kind, sizes = requests["kind"], requests["size_bytes"].astype(np.int64)
    change = np.where(kind == Kind.SEGMENT_ALLOC, sizes, 0)
    change -= np.where(kind == Kind.SEGMENT_FREE, sizes, 0)
    held: Records = np.cumsum(np.concatenate([[0], change]))
    return held


def rows_before(requests: Records, events: int) -> int:
    """Return how many rows the first `events` recorded events take, marks and trims between."""
    if events == 0:
        return 0
    kind = requests["kind"]
    recorded = np.flatnonzero((kind != Kind.MARK) & (kind != Kind.TRIM))
    return int(recorded[events - 1]) + 1 if events <= len(recorded) else len(requests)


def end_of_awaited_frees(requests: Records, row: int) -> int:
    """Return the end of the frees that a call of empty_cache before `row` first waited for."""
    while row < len(requests) and requests["kind"][row] == Kind.FREE:
        row += 1
    return row


def _with_refusals(trace: Trace) -> Records:
    """Return the events with an allocation, with its own id, for each refused request."""
    requests: Records = trace.requests.copy()
    refused = np.flatnonzero(requests["kind"] == Kind.OOM)
    requests["kind"][refused] = Kind.ALLOC
    requests["address"][refused] = 0
    requests["id"][refused] = trace.id_count + np.arange(len(refused))
    return requests


def _first_of_runs(requests: Records) -> Records:
    """Return the rows where releases of segments begin."""
    is_free = requests["kind"] == Kind.SEGMENT_FREE
    first: Records = np.flatnonzero(is_free & ~np.concatenate([[False], is_free[:-1]]))
    return first


def _noted_runs(requests: Records, notes: Notes) -> set[int]:
    """Return the first rows of the segments that noted calls of empty_cache released."""
    return {
        end_of_awaited_frees(requests, rows_before(requests, reading.events))
        for reading in notes.readings
        if reading.is_trim
    }


@dataclass(frozen=True)
class _Device:
    """Tells when PyTorch had no room for a request."""

    trace: Trace
    notes: Notes
    configuration: Configuration

    def first_needed(self, events: Records, reserved_bytes: int) -> int | None:
        """Return the first of `events` that happened for the allocation at their end, or None.

        Collected and oversize blocks are released without waiting for any free: those before were
        complete.
        """
        was_refused = events["address"][-1] == 0
        gave_back = np.flatnonzero(events["kind"] == Kind.SEGMENT_FREE)
        if not len(gave_back):
            return 0 if was_refused else None
        sizes, is_taken = events["size_bytes"], events["kind"] == Kind.SEGMENT_ALLOC
        is_before = np.arange(len(events)) < gave_back[0]
        held_bytes = reserved_bytes + int(sizes[is_taken & is_before].sum())
        taken_bytes = int(sizes[is_taken & ~is_before].sum())
        is_collected = self._collects(held_bytes) and (sizes[gave_back] > SMALL_SEGMENT).all()
        if not (was_refused or (is_collected and taken_bytes)) and not self._ran_short(
            int(sizes[-1]), held_bytes, taken_bytes
        ):
            return None
        oversize_bytes = self.configuration.oversize_bytes
        is_oversize = oversize_bytes is not None and sizes[gave_back[0]] >= oversize_bytes
        return int(gave_back[0]) if is_collected or is_oversize else 0

    def _collects(self, held_bytes: int) -> bool:
        """Return whether PyTorch collects garbage, large blocks only, before it reserves memory."""
        above_bytes = self.configuration.collects_above_bytes
        return above_bytes is not None and held_bytes > above_bytes

    def _ran_short(self, size_bytes: int, held_bytes: int, taken_bytes: int) -> bool:
        """Return whether a request, finally served by reserving `taken_bytes`, had no room before.

        Released memory can make room that otherwise had to be mapped, so the most that an
        expandable segment can need counts.
        """
        rounded_bytes = round_size(size_bytes, self.trace.settings)
        if self.trace.is_expandable:
            taken_bytes = max(taken_bytes, self.configuration.granules_bytes(rounded_bytes))
        limit = self.notes.limit_bytes
        segment_bytes = self.configuration.segment_bytes(rounded_bytes)
        is_over_limit = limit is not None and held_bytes + segment_bytes > limit
        return held_bytes + taken_bytes > self.notes.capacity_bytes or is_over_limit


def _needed_rows(device: _Device, requests: Records, noted: set[int]) -> Records:
    """Return the rows of everything that allocations did because they found no room."""
    reserved = recorded_bytes(requests)
    kind = requests["kind"].tolist()
    bounds = {rows_before(requests, reading.events) for reading in device.notes.readings}
    needed: list[int] = []
    for row in np.flatnonzero(requests["kind"] == Kind.ALLOC).tolist():
        begin = _begin_of_events(kind, row, noted, bounds)
        first = device.first_needed(requests[begin : row + 1], int(reserved[begin]))
        if first is not None:
            needed += range(begin + first, row)
    return np.array(needed, np.int64)


def _begin_of_events(kind: list[int], row: int, noted: set[int], bounds: set[int]) -> int:
    """Return the first event of the allocation in `row`: segments, and frees it waited for.

    Frees that were complete before may be among them: no block was found with their memory, so
    none will be found without it. Events before a reading or of a noted call are not among them.
    """
    first = row
    while first > 0 and first not in bounds and kind[first - 1] in _EVENTS_OF_ALLOC:
        if first - 1 in noted:
            return row
        first -= 1
    return first
