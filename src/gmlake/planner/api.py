"""Plans recordings: gmlake.plan()."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import numpy as np

from gmlake.errors import blaming_trace
from gmlake.planner import _planner
from gmlake.planner.lifetimes import (
    lifetimes_of,
    most_live_bytes,
    ordered_moments,
    orderings_of,
)
from gmlake.planner.periods import find_steps
from gmlake.planner.plan_report import PlanReport, PlanResult, StepResult
from gmlake.planner.profiles import profile_of
from gmlake.settings import parse_capacity
from gmlake.snapshots.whole import Source, load

if TYPE_CHECKING:
    from gmlake.trace import Trace

MOST_BUDGET_MS: Final = 86_400_000
"""A day."""

_LOOK_SECONDS: Final = 0.1
"""Between two checks for interrupts: a signal in another thread does not wake the main one."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def plan(
    source: Source,
    *,
    budget_ms: int | None = None,
    capacity: int | str | None = None,
    device: int | None = None,
) -> PlanReport:
    """Place everything that a recording allocates, with all requests known.

    source: as gmlake.load() takes it.
    budget_ms: about how long to search if the first placements leave room; None: 1000 for up
        to 4096 requests, else 350, or 1 for every 220 of them.
    capacity: a peak that is good enough, in bytes or as text; PlanResult.fits says if it was met.
    device: only this one of a file that holds several.

    If a recording repeats a step, between marks or as found from its allocations, the result
    includes the plan of one step. Raises TraceError for an unreadable file, ValueError for a wrong
    argument.
    """
    settings = _Settings(budget_ms, capacity)
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    traces = [one.trace for one in load(source).of_device(device)]
    return PlanReport(tuple(settings.place_trace(one, name or one.name) for one in traces))


class _Settings:
    """The arguments of plan(), checked."""

    def __init__(self, budget_ms: int | None, capacity: int | str | None) -> None:
        if budget_ms is not None and not 1 <= budget_ms <= MOST_BUDGET_MS:
            raise ValueError(f"a budget of {budget_ms} ms is outside 1 to {MOST_BUDGET_MS}")
        self.budget_ms = budget_ms or 0
        self.capacity_bytes = parse_capacity(capacity)

    def place_trace(self, trace: Trace, name: str) -> PlanResult:
        trace.check()
        lifetimes, orderings = lifetimes_of(trace), orderings_of(trace)
        offsets = np.zeros(len(lifetimes), np.uint64)
        with blaming_trace():
            found = interruptible(
                _planner.solve,
                lifetimes,
                offsets,
                orderings=orderings,
                budget_ms=self.budget_ms,
                capacity=self.capacity_bytes,
            )
        return PlanResult(
            trace=name,
            device=trace.device,
            requests=len(lifetimes),
            live_bytes=most_live_bytes(lifetimes),
            lower_bound_bytes=found["lower_bound_bytes"],
            peak_bytes=found["peak_bytes"],
            method=found["method"],
            seconds=found["time_ns"] / 1e9,
            is_proven=found["is_proven"],
            capacity_bytes=self.capacity_bytes,
            streams=len(np.unique(lifetimes["stream"])),
            ordered_moments=len(ordered_moments(trace)),
            step=self._plan_step(trace),
            lifetimes=lifetimes,
            offsets=offsets,
        )

    def _plan_step(self, trace: Trace) -> StepResult | None:
        steps = find_steps(trace)
        chosen = profile_of(trace, steps) if len(steps) else None
        if chosen is None:
            return None
        built = interruptible(_planner.Plan.build, chosen.profile, budget_ms=self.budget_ms)
        told = built.describe()
        return StepResult(
            first_event=chosen.first_event,
            events=chosen.events,
            requests=told["requests"],
            placed=told["placed"],
            steps_in_period=told["steps"],
            alike=chosen.alike,
            lower_bound_bytes=told["lower_bound_bytes"],
            peak_bytes=told["peak_bytes"],
            method=told["method"],
            seconds=told["time_ns"] / 1e9,
            fingerprint=told["fingerprint"],
            plan=built,
        )


def interruptible(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function that releases the GIL; return its result or raise its exception.

    It runs in its own thread, since the main one can be interrupted only between two steps of
    Python. After an interrupt it continues in the background until it is done, or the process ends.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    if threading.current_thread() is not threading.main_thread():
        return work(*args, **kwargs)
    thread = threading.Thread(target=run, name="gmlake-plan", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
    if errors:
        raise errors[0]
    return results[0]
