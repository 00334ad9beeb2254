"""Plans traces and instances: gmlake.plan()."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.errors import blaming_trace
from gmlake.planner import _planner
from gmlake.planner.instances import Instance, is_instance, load_instance
from gmlake.planner.interrupts import interruptible
from gmlake.planner.lifetimes import (
    lifetimes_of,
    most_live_bytes,
    ordered_moments,
    orderings_of,
)
from gmlake.planner.periods import find_steps
from gmlake.planner.plan_errors import PlanError
from gmlake.planner.plan_layout import ORDERING
from gmlake.planner.plan_report import PlanReport, PlanResult, StepResult, ratio
from gmlake.planner.profiles import profile_of
from gmlake.settings import parse_capacity
from gmlake.snapshots.whole import Source, load
from gmlake.trace.layout import ALIGNMENT, Records

if TYPE_CHECKING:
    from gmlake.trace import Trace

MOST_BUDGET_MS: Final = 86_400_000
"""A day."""

_LARGEST_ALIGNMENT = 1 << 48


def plan(
    source: Source | Instance,
    *,
    budget_ms: int | None = None,
    capacity: int | str | None = None,
    alignment: int | None = None,
    device: int | None = None,
) -> PlanReport:
    """Place everything that a recording or an instance allocates, with all requests known.

    source: as gmlake.load() takes it; or an instance as CSV (id,lower,upper,size; plain or gzip).
    budget_ms: about how long to search if the first placements leave room; None: 1000 for up
        to 4096 requests, else 350, or 1 for every 220 of them.
    capacity: a peak that is good enough, in bytes or as text; PlanResult.fits says if it was met.
    alignment: of every offset, a power of two; None: 512 for traces, 1 for instances.
    device: only this one of a file that holds several.

    If a recording repeats a step, between marks or as found from its allocations, the result
    includes the plan of one step. Raises TraceError for an unreadable file, ValueError for a wrong
    argument.
    """
    settings = _Settings(budget_ms, capacity, alignment)
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    found = load_instance(name) if name and is_instance(name) else source
    if isinstance(found, Instance):
        return PlanReport((settings.place_instance(found, name or found.name),))
    traces = [one.trace for one in load(found).of_device(device)]
    return PlanReport(tuple(settings.place_trace(one, name or one.name) for one in traces))


class _Settings:
    """The arguments of plan(), checked."""

    def __init__(
        self,
        budget_ms: int | None,
        capacity: int | str | None,
        alignment: int | None,
    ) -> None:
        if budget_ms is not None and not 1 <= budget_ms <= MOST_BUDGET_MS:
            raise ValueError(f"a budget of {budget_ms} ms is outside 1 to {MOST_BUDGET_MS}")
        if alignment is not None and (
            not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1)
        ):
            raise ValueError(f"an alignment of {alignment} is not a power of two up to 2^48")
        self.budget_ms = budget_ms or 0
        self.capacity_bytes = parse_capacity(capacity)
        self.alignment = alignment

    def place_instance(self, instance: Instance, name: str) -> PlanResult:
        nothing = np.zeros(0, ORDERING)
        result = self._place(instance.lifetimes, nothing, self.alignment or 1, name)
        return replace(result, instance=instance)

    def place_trace(self, trace: Trace, name: str) -> PlanResult:
        trace.check()
        lifetimes, orderings = lifetimes_of(trace), orderings_of(trace)
        result = self._place(lifetimes, orderings, self.alignment or ALIGNMENT, name)
        return replace(
            result,
            device=trace.device,
            streams=len(np.unique(lifetimes["stream"])),
            ordered_moments=len(ordered_moments(trace)),
            step=self._plan_step(trace),
        )

    def _place(
        self, lifetimes: Records, orderings: Records, alignment: int, name: str
    ) -> PlanResult:
        offsets = np.zeros(len(lifetimes), np.uint64)
        with blaming_trace():
            found = interruptible(
                _planner.solve,
                lifetimes,
                offsets,
                alignment=alignment,
                orderings=orderings,
                budget_ms=self.budget_ms,
                capacity=self.capacity_bytes,
            )
        peak, bound = found["peak_bytes"], found["lower_bound_bytes"]
        return PlanResult(
            trace=name,
            requests=len(lifetimes),
            live_bytes=most_live_bytes(lifetimes, alignment),
            lower_bound_bytes=bound,
            peak_bytes=peak,
            ratio=ratio(peak, bound),
            method=found["method"],
            seconds=found["time_ns"] / 1e9,
            valid=_is_valid(lifetimes, offsets, peak, alignment, orderings),
            is_proven=found["is_proven"],
            alignment=alignment,
            capacity_bytes=self.capacity_bytes,
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
            ratio=ratio(told["peak_bytes"], told["lower_bound_bytes"]),
            method=told["method"],
            seconds=told["time_ns"] / 1e9,
            fingerprint=told["fingerprint"],
            plan=built,
        )


def _is_valid(
    lifetimes: Records, offsets: Records, peak_bytes: int, alignment: int, orderings: Records
) -> bool:
    try:
        _planner.check_placement(
            lifetimes, offsets, peak_bytes, alignment=alignment, orderings=orderings
        )
    except PlanError:
        return False
    return True
