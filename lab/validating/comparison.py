"""Runs a recording through a policy, and finds where PyTorch behaved differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake import _core
from gmlake.errors import TraceError, blaming_trace
from gmlake.lake import Lake
from gmlake.trace.layout import SMALL_LIMIT, Kind, Records
from validating.asking import (
    LATE,
    end_of_awaited_frees,
    oversize_runs,
    recorded_bytes,
    requests_of,
    rows_before,
)
from validating.configuration import Configuration, configuration_of
from validating.report import Notes, Reading, ValidationResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gmlake.trace import Trace

_ROOMY: Final = 1 << 46
_ROOMY_EXPANDABLE: Final = 1 << 40
_MIB: Final = 1 << 20
_ADDRESSES: Final = 1 << 64
_MOST_DIFFERENCES: Final = 20
_SYNCHRONISATIONS: Final = "num_sync_all_streams"
_NEVER: Final = {"num_oom_rejections": 0}
"""A statistic that only a program's observers change; traces do not record it."""


def validate(trace: Trace, notes: Notes | None = None) -> ValidationResult:
    """Replay a recording under the policy that models its allocator, and compare the two.

    Without expandable segments that is `caching`: the simulated driver returns segments at the
    recorded addresses; everything else is the policy's own choice. With them it is `expandable`.
    Source of the algorithms: PyTorch's CUDACachingAllocator. Versions of PyTorch differ in which of
    several free blocks of one size serves a request, and traces do not name the version: the better
    agreement counts.

    With notes, statistics are compared at each reading, and requests that PyTorch refused are
    repeated and must be refused. Recorded settings (max_split_size, large_segment_size_mb, ...)
    become the policy's; unsupported ones become remarks of the result.

    Each private pool (CUDA graphs, MemPool) is a heap of its own. Events name it from PyTorch 2.12
    on; before, memory that a private pool released earlier cannot be distinguished from other
    memory. Notes are not used where there are private pools.

    Raises TraceError for a recording without recorded addresses, one that does not begin with the
    first allocation, and for recorded settings that PyTorch would not accept.
    """
    found = _compare(trace, notes, {})
    if found.is_complete or found.policy != "caching":
        return found
    other = _compare(trace, notes, {"oldest_segment_first": 1})
    return max(found, other, key=lambda result: (result.is_complete, result.addresses_matched))


def _compare(trace: Trace, notes: Notes | None, order: dict[str, int]) -> ValidationResult:
    _check_is_whole(trace)
    remarks: tuple[str, ...] = ()
    if notes and trace.pools:
        notes = None
        remarks = ("statistics are not compared where there are private pools",)
    configuration = configuration_of(trace, notes)
    policy = "expandable" if trace.is_expandable else "caching"
    capacity = notes.capacity_bytes if notes else _capacity_of(trace, configuration)
    knobs: dict[str, Any] = configuration.knobs | order
    with blaming_trace(), Lake("sim", policy, capacity, **knobs) as lake:
        run = _Run(trace, notes, configuration, lake)
        if policy == "caching":
            run.replay.follow_segments()
        run.all()
        return run.result(policy, remarks + configuration.remarks)


def _capacity_of(trace: Trace, configuration: Configuration) -> int:
    """Return a capacity without notes: more than enough, unless a request found no room.

    Each stream and pool of expandable segments reserves 1 1/8 of it as address space, of which the
    simulated device has less than 2^52 bytes.
    """
    peak_bytes = int(recorded_bytes(trace.requests).max())
    if not trace.is_expandable:
        return peak_bytes if oversize_runs(trace, configuration) else _ROOMY
    allocs = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    lanes = len(np.unique(allocs[["stream", "pool"]]))
    most_bytes = _ROOMY // max(2 * lanes, 1) // _MIB * _MIB
    if peak_bytes > most_bytes:
        reason = (
            f"{peak_bytes} bytes on so many streams and in so many private pools leave the "
            "simulated device no addresses"
        )
        raise TraceError(reason)
    return min(max(_ROOMY_EXPANDABLE, 4 * peak_bytes // _MIB * _MIB), most_bytes)


def _check_is_whole(trace: Trace) -> None:
    allocs = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    if (allocs["address"] == 0).any():
        reason = "holds no recorded addresses to compare with; record it with PyTorch"
        raise TraceError(reason)
    if len(trace.start_blocks) or len(trace.start_segments):
        reason = "does not begin with the first allocation; switch recording on earlier"
        raise TraceError(reason)


# ---- the replay


@dataclass
class _Lane:
    """The blocks of one lane: how many live, how far ours lie from PyTorch's.

    The distance is None until a block shows it.
    """

    live: int = 0
    distance: int | None = None


class _Run:
    """One trace on one lake, and the differences found so far."""

    def __init__(
        self, trace: Trace, notes: Notes | None, configuration: Configuration, lake: Lake
    ) -> None:
        self.trace = trace
        self.configuration = configuration
        self.lake = lake
        self.readings = notes.readings if notes else ()
        self.requests = requests_of(trace, notes, configuration)
        ids = trace.id_count + int(np.count_nonzero(trace.requests["kind"] == Kind.OOM))
        self.replay = _core.Replay(lake, ids)
        self.addresses = np.zeros(len(self.requests), np.uint64)
        self.reserved = np.zeros(len(self.requests), np.int64)
        self.done = 0
        self.statistics = 0
        self.statistics_matched = 0
        self.differences: list[str] = []

    def all(self) -> None:
        """Run every request, and stop at each reading."""
        for reading in self.readings:
            self._to(rows_before(self.requests, reading.events))
            self._compare_statistics(reading)
            if reading.is_trim:
                self._to(end_of_awaited_frees(self.requests, self.done))
                self.lake.trim()
        self._to(len(self.requests))

    def _to(self, end: int) -> None:
        """Run up to request `end`; with expandable segments, one by one."""
        octets = self.requests.view(np.uint8)
        size = _core.REQUEST_BYTES
        step = 1 if self.trace.is_expandable else max(end - self.done, 1)
        for first in range(self.done, end, step):
            last = min(first + step, end)
            slots = self.addresses[first:last].view(np.uint8)
            self.replay.run(octets[first * size : last * size], slots)
            self.reserved[last - 1] = self.lake.stats()["reserved_bytes"]
        self.done = max(self.done, end)

    def _compare_statistics(self, reading: Reading) -> None:
        ours = self.lake.torch_stats() | _NEVER
        if (count := reading.stats.get(_SYNCHRONISATIONS, 0)) > ours[_SYNCHRONISATIONS]:
            # The rest are calls of empty_cache by libraries that had nothing to give back: they
            # change this count and leave nothing in the trace.
            ours[_SYNCHRONISATIONS] = count
        for name, value in reading.stats.items():
            self.statistics += 1
            if ours.get(name) == value:
                self.statistics_matched += 1
            else:
                self._note(
                    f"{reading.label or 'reading'}, after {reading.events} events: "
                    f"{name} is {ours.get(name, 'not counted')}, PyTorch's {value}"
                )

    def _note(self, difference: str) -> None:
        if len(self.differences) < _MOST_DIFFERENCES:
            self.differences.append(difference)

    # ---- what came out

    def result(self, policy: str, remarks: tuple[str, ...]) -> ValidationResult:
        is_caching = policy == "caching"
        expected = self.requests["address"] if is_caching else self._expected_addresses()
        allocations, addresses = self._compare_addresses(expected)
        events, matched = (0, 0) if is_caching else self._compare_reserved()
        segments, blocks = self._compare_final() if is_caching else (0, 0)
        return ValidationResult(
            trace=self.trace.name,
            policy=policy,
            allocations=allocations,
            addresses_matched=addresses,
            segments=len(self.trace.spans) if is_caching else 0,
            segments_matched=segments,
            final_blocks=len(self.trace.ranges) if is_caching else 0,
            final_blocks_matched=blocks,
            statistics=self.statistics,
            statistics_matched=self.statistics_matched,
            reserved_events=events,
            reserved_matched=matched,
            peak_reserved_bytes=self.lake.stats()["peak_reserved_bytes"],
            recorded_peak_bytes=int(recorded_bytes(self.requests).max()),
            pooled_allocations=int(
                np.count_nonzero(
                    (self.trace.requests["kind"] == Kind.ALLOC) & (self.trace.requests["pool"] > 0)
                )
            ),
            remarks=remarks,
            differences=tuple(self.differences),
        )

    def _expected_addresses(self) -> Records:
        """Return where expandable segments must lie: like PyTorch's, apart from the reservation.

        The device chooses where the reservation of a stream and pool begins, and PyTorch may
        release it when nothing in it is live; so the first block in it may lie anywhere, and later
        ones must keep the same distance.
        """
        expected: Records = self.requests["address"].copy()
        lanes: dict[tuple[int, int, bool], _Lane] = {}
        lane_of: dict[int, tuple[int, int, bool]] = {}
        for place, row in enumerate(self.requests.tolist()):
            number, size, address, _, stream, kind, pool = row
            if kind == Kind.FREE and number in lane_of:
                lanes[lane_of.pop(number)].live -= 1
            elif kind == Kind.ALLOC and address:
                lane_of[number] = pool, stream, size <= SMALL_LIMIT
                lane = lanes.setdefault(lane_of[number], _Lane())
                if not lane.live:
                    lane.distance = None
                lane.live += 1
                ours = int(self.addresses[place])
                if lane.distance is None and ours:
                    lane.distance = ours - address
                expected[place] = (address + (lane.distance or 0)) % _ADDRESSES
        return expected

    def _compare_addresses(self, expected: Records) -> tuple[int, int]:
        """Return how many allocations there are, refused ones included, and how many agree."""
        is_alloc = self.requests["kind"] == Kind.ALLOC
        is_refused, was_refused = self.addresses == 0, self.requests["address"] == 0
        differs = is_alloc & ((self.addresses != expected) | (is_refused != was_refused))
        for place in np.flatnonzero(differs)[:_MOST_DIFFERENCES].tolist():
            theirs = "refused by" if was_refused[place] else f"at {int(expected[place]):#x} by"
            ours = "refused" if is_refused[place] else f"at {int(self.addresses[place]):#x}"
            size = int(self.requests["size_bytes"][place])
            self._note(f"event {place}: {size} bytes {ours}, {theirs} PyTorch")
        allocations = int(np.count_nonzero(is_alloc))
        return allocations, allocations - int(np.count_nonzero(differs))

    def _compare_reserved(self) -> tuple[int, int]:
        """Compare after each event of the program, which may be several of the device."""
        is_whole = np.isin(self.requests["kind"], (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED))
        compared = np.flatnonzero(is_whole & (self.requests["pool"] != LATE))
        theirs = recorded_bytes(self.requests)[1:][compared]
        ours = self.reserved[compared]
        differs = np.abs(theirs - ours) >= self.configuration.large_granule_bytes
        for place in np.flatnonzero(differs)[:_MOST_DIFFERENCES].tolist():
            self._note(
                f"event {compared[place]}: {ours[place]} bytes reserved, PyTorch's {theirs[place]}"
            )
        return len(compared), len(compared) - int(np.count_nonzero(differs))

    def _compare_final(self) -> tuple[int, int]:
        """Return how many of the recorded final segments and blocks the policy has, too."""
        trace, spans = self.trace, self.lake.spans()
        held_segments = {
            (span["address"], span["size"], span["stream"], span["is_small"], span["pool"][1])
            for span in spans
        }
        held_blocks = {
            (address, size, is_used)
            for span in spans
            for address, size, _, is_used in span["ranges"]
        }
        segments = _rows(trace.spans, "address", "size_bytes", "stream", "is_small")
        pools = trace.numbers_of(trace.spans).tolist()
        blocks = _rows(trace.ranges, "address", "size_bytes", "is_used")
        return (
            sum((*row, pool) in held_segments for row, pool in zip(segments, pools, strict=True)),
            sum(block in held_blocks for block in blocks),
        )


def _rows(table: Records, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column].tolist() for column in columns), strict=True)
