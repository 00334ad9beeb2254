"""Replays a trace under one policy after another and compares the memory they would reserve."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake import _core, annexes, settings
from gmlake.errors import blaming_trace
from gmlake.lake import Lake
from gmlake.pictures.drawable import Drawable
from gmlake.pictures.figures import Policies, Report
from gmlake.settings import as_typed, check_knobs, parse_capacity
from gmlake.snapshots.pool_names import PrivatePool, pool_keys
from gmlake.snapshots.situations import has_refused, refused_row
from gmlake.tables import Printed, Tables, replay_tables
from gmlake.trace.layout import LARGEST_SIZE, Kind
from gmlake.trace.trace import slices
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.refusals import Refusal
    from gmlake.trace import Trace

SIM_CAPACITY: Final = 1 << 40
"""Memory of the simulated device by default: so much that no request is refused."""

_ADDRESS_BYTES: Final = 1 << 51
"""Half of what the simulated device has: policies round up what they reserve."""

_NS_PER_MS: Final = 1e6

Progress = Callable[[int], None]
"""Called with the number of events just replayed."""


@dataclass(frozen=True)
class ReplayResult:
    """The result of one policy on one trace. Sizes are in bytes.

    events: recorded events; the blocks live before recording come on top of them.
    allocations: requests for memory, those placed first included.
    peak_live_bytes: the peak of live bytes, each block rounded up to 512.
    peak_reserved_bytes: the peak of bytes held from the driver.
    utilization: peak_live_bytes / peak_reserved_bytes; 1.0 if nothing was held.
    wanted_bytes: peak_live_bytes if nothing were refused. After a refusal the other figures cover
        only the requests that were served.
    first_refused: the event of the first request that was refused, -1 for a block from before the
        recording; None if all were served. refused_bytes: its size. asked_at: the user's line
        that asked, "" if it is not known. is_refused_again: PyTorch had refused it, too.
    states: the number of requests served in each state; "oom" counts refusals.
    driver_calls: the number of each driver call.
    driver_time_ns: the cost of these calls; modelled by the driver "sim", measured by others.
    device: the device whose prices these are; "sim" models an NVIDIA H100 up to 96 GiB, and an
        H200 above.
    seconds: wall time of the replay itself.
    more: further figures from the policies of annexes, by name.
    """

    trace: str
    policy: str
    events: int
    allocations: int
    peak_live_bytes: int
    peak_reserved_bytes: int
    utilization: float
    states: dict[str, int]
    driver_calls: dict[str, int]
    driver_time_ns: int
    seconds: float
    wanted_bytes: int = 0
    first_refused: int | None = None
    refused_bytes: int = 0
    asked_at: str = ""
    is_refused_again: bool = False
    device: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure, including those of `more`."""
        figures = asdict(self)
        more: dict[str, Any] = figures.pop("more")
        return {**figures, **more}


@dataclass(frozen=True)
class ReplayReport(Drawable, Printed):
    """The results of one or more traces, in the order they were made; prints as a table.

    refusals: the first requests that PyTorch refused, by trace, with each policy's answer.
    refused: how many requests PyTorch refused, by trace. others: the bytes of the device that
        others had when it was recorded, by trace, where that is known. pools: each trace's private
        pools, with their bytes among those live at the recorded peak.
    """

    results: tuple[ReplayResult, ...] = ()
    capacity_bytes: int = 0
    driver: str = "sim"
    knobs: dict[str, int | str] = field(default_factory=dict)
    refusals: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    pools: dict[str, tuple[tuple[PrivatePool, int], ...]] = field(default_factory=dict)

    @property
    def is_limited(self) -> bool:
        """Whether the device can run out of memory."""
        return self.capacity_bytes != SIM_CAPACITY

    @property
    def fits(self) -> bool:
        """Whether at least one policy served each trace whole."""
        served = {result.trace for result in self.results if result.first_refused is None}
        return served == {result.trace for result in self.results}

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that `gmlake replay --json` prints."""
        return {
            "results": [result.to_dict() for result in self.results],
            "refusals": {
                trace: [refusal.to_dict() for refusal in refusals]
                for trace, refusals in self.refusals.items()
            },
            "refused": self.refused,
            "others": self.others,
            "pools": {
                trace: [{**pool_keys(pool), "live_bytes": size} for pool, size in pools]
                for trace, pools in self.pools.items()
            },
        }

    def __add__(self, other: ReplayReport) -> ReplayReport:
        """Join the results of two reports made under the same settings."""
        return ReplayReport(
            self.results + other.results,
            self.capacity_bytes,
            self.driver,
            self.knobs,
            self.refusals | other.refusals,
            self.refused | other.refused,
            self.others | other.others,
            self.pools | other.pools,
        )

    def _tables(self) -> Tables:
        """Render the table; the best utilization of each trace is marked."""
        yield from replay_tables(self)

    def report(self) -> Report:
        """Return the policies side by side, to be drawn."""
        traces = dict.fromkeys(result.trace for result in self.results)
        figures = [
            _policies([result for result in self.results if result.trace == trace], trace)
            for trace in traces
        ]
        facts = (
            ("device", ", ".join(dict.fromkeys(result.device for result in self.results))),
            ("capacity", format_size(self.capacity_bytes)),
            *((name, as_typed(name, value)) for name, value in self.knobs.items()),
        )
        return Report("Policies side by side", facts, tuple(figures))


def _policies(results: list[ReplayResult], trace: str) -> Policies:
    return Policies(
        title=trace or "policies",
        names=tuple(result.policy for result in results),
        reserved_bytes=tuple(result.peak_reserved_bytes for result in results),
        oom_counts=tuple(result.states.get("oom", 0) for result in results),
        driver_ms=tuple(result.driver_time_ns / _NS_PER_MS for result in results),
        live_bytes=max(result.peak_live_bytes for result in results),
    )


def choose_policies(policies: str | Iterable[str]) -> tuple[str, ...]:
    """Return policy names from "all", "a,b", or several names; ValueError for an unknown one."""
    known = settings.policies()
    if policies == "all":
        return known
    names = policies.split(",") if isinstance(policies, str) else list(policies)
    chosen = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    for name in chosen:
        if name not in known:
            raise ValueError(
                f"no policy is called {name[:60]!r}; there are {', '.join(known)}, and all"
            )
    if not chosen:
        raise ValueError(f"no policy was chosen; there are {', '.join(known)}, and all")
    return chosen


def replay_trace(  # noqa: PLR0913 (each is a setting of its own)
    trace: Trace,
    policies: str | Sequence[str] = "all",
    capacity: int | str | None = None,
    driver: str = "sim",
    device: int = 0,
    *,
    progress: Progress | None = None,
    **knobs: int | str,
) -> ReplayReport:
    """Replay one device's events; see gmlake.replay()."""
    check_knobs(knobs)
    trace.check()
    is_roomy = capacity is None and driver == "sim"
    if is_roomy:
        capacity = roomy_capacity(trace)
    asked = trace if is_roomy else with_refused(trace)
    capacity_bytes = parse_capacity(capacity)
    lake_bytes = capacity_bytes + trace.asleep_bytes if capacity_bytes else 0
    requests = Requests(asked)
    wanted_bytes = asked.peak_live_bytes
    settings: dict[str, Any] = dict(knobs)
    results = []
    for policy in choose_policies(policies):
        with Lake(driver, policy, lake_bytes or None, device, **settings) as lake, blaming_trace():
            result = _replay_on(lake, policy, requests, progress)
            result = replace(result, wanted_bytes=wanted_bytes)
            results.append(result if is_roomy else _of_recording(result, trace))
    if is_roomy:
        capacity_bytes = SIM_CAPACITY
    else:
        results = [_as_recorded(result, trace, capacity_bytes) for result in results]
    if capacity_bytes == 0:
        capacity_bytes = _core.device_describe(driver, device)["total_bytes"]
    return ReplayReport(tuple(results), capacity_bytes, driver, knobs)


def with_refused(trace: Trace) -> Trace:
    """Return the trace with each request that PyTorch refused served, and freed at once."""
    rows = np.flatnonzero(trace.requests["kind"] == Kind.OOM)
    made = np.repeat(trace.requests[rows], 2)
    made["id"] = trace.id_count + np.arange(len(rows)).repeat(2)
    made["kind"] = np.tile(np.array([Kind.ALLOC, Kind.FREE], np.uint32), len(rows))
    made["size_bytes"] = np.minimum(made["size_bytes"], np.uint64(LARGEST_SIZE))
    made["address"] = 0
    return replace(trace, requests=np.insert(trace.requests, rows.repeat(2), made))


def _recorded_row(trace: Trace, row: int) -> int:
    """Return the event that a row of with_refused(trace) is: the refusal, of a refused request."""
    rows = np.flatnonzero(trace.requests["kind"] == Kind.OOM)
    return row - 2 * int(np.count_nonzero(rows + 2 * np.arange(len(rows)) < row))


def roomy_capacity(trace: Trace) -> int:
    """Return a capacity of the simulated device at which no request is refused.

    Each stream of a private pool has ranges of addresses of that size, and very many pools use up
    those of the device.
    """
    if not trace.pools:
        return SIM_CAPACITY
    allocs = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    lanes = 2 * (len(np.unique(allocs[["stream", "pool"]])) + len(trace.pools))
    return min(SIM_CAPACITY, _ADDRESS_BYTES // lanes >> 21 << 21)


def _of_recording(result: ReplayResult, trace: Trace) -> ReplayResult:
    """Return a result with the events of the trace, not those of the requests made from it."""
    result, row = replace(result, events=len(trace.requests)), result.first_refused
    if row is None or row < 0:
        return result
    recorded = _recorded_row(trace, row)
    is_again = bool(trace.requests["kind"][recorded] == Kind.OOM)
    return replace(result, first_refused=recorded, is_refused_again=is_again)


def _as_recorded(result: ReplayResult, trace: Trace, capacity_bytes: int) -> ReplayResult:
    """Return a result that contradicts no refusal by the same policy in the recording."""
    row = refused_row(trace)
    has_served = result.first_refused is None or result.first_refused > row
    if not has_served or not has_refused(trace, result.policy, capacity_bytes):
        return result
    size_bytes = int(trace.requests["size_bytes"][row])
    states = result.states | {"oom": result.states.get("oom", 0) + 1}
    refused = replace(result, first_refused=row, refused_bytes=size_bytes, is_refused_again=True)
    return replace(refused, states=states)


class Requests:
    """The requests of a trace, as each policy sees them; built once for all policies."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._requests = trace.replay_requests()

    def replay(
        self, lake: Lake, policy: str, progress: Progress | None = None
    ) -> tuple[_core.ReplayTotals, float, dict[str, Any]]:
        """Replay them on a lake opened for that; return totals, seconds, and further figures.

        An annex may replay its policies differently.
        """
        run = _core.Replay(lake, self.trace.id_count)
        begin = time.perf_counter()
        for ways in annexes.hooked("replay"):
            if policy in ways:
                totals, more = ways[policy](lake, run, self.trace, progress)
                return totals, time.perf_counter() - begin, more
        totals = run.run(b"")
        for part in slices(self._requests):
            totals = run.run(part.view(np.uint8))
            if progress is not None:
                progress(len(part))
        return totals, time.perf_counter() - begin, {}


def _replay_on(
    lake: Lake, policy: str, requests: Requests, progress: Progress | None
) -> ReplayResult:
    totals, seconds, more = requests.replay(lake, policy, progress)
    return replace(_result(lake, policy, requests.trace, totals, seconds), more=more)


def _result(
    lake: Lake, policy: str, trace: Trace, totals: _core.ReplayTotals, seconds: float
) -> ReplayResult:
    stats = lake.stats()
    live, reserved = totals["peak_live_bytes"], totals["peak_reserved_bytes"]
    first_refused, refused_bytes = _first_refused(trace, totals)
    return ReplayResult(
        trace=trace.name,
        policy=policy,
        events=len(trace.requests),
        allocations=totals["allocations"],
        peak_live_bytes=live,
        peak_reserved_bytes=reserved,
        utilization=live / reserved if reserved else 1.0,
        states=stats["states"],
        driver_calls=stats["driver_calls"],
        driver_time_ns=stats["driver_time_ns"],
        seconds=seconds,
        first_refused=first_refused,
        refused_bytes=refused_bytes,
        device=lake.device_name,
    )


def _first_refused(trace: Trace, totals: _core.ReplayTotals) -> tuple[int | None, int]:
    """Return the event of the first request that was refused, -1 before all of them, and its size.

    None, 0 if all were served.
    """
    number = totals.get("first_refused")
    if number is None:
        return None, 0
    requests, start = trace.requests, trace.start_blocks
    rows = np.flatnonzero((requests["kind"] == Kind.ALLOC) & (requests["id"] == number))
    if len(rows):
        return int(rows[0]), int(requests["size_bytes"][rows[0]])
    return -1, int(start["requested_bytes"][start["id"] == number][0])


def event_count(trace: Trace, policies: Sequence[str]) -> int:
    """Return how many events `replay` will report to its progress callback."""
    return (len(trace.requests) + len(trace.start_blocks)) * len(policies)
