"""The plans of one device: made from the steps that its lake watched, beside the training."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gmlake import _core
from gmlake.errors import Error
from gmlake.pytorch import notices

if TYPE_CHECKING:
    from gmlake.lake import Lake

_SHORT_SECONDS: Final = 0.005
"""What planning may hold a step up; longer ones go on beside the next steps."""

_GIVE_UP_AFTER: Final = 8
"""Planned steps in a row, served badly and none like another, after which plans are dropped."""

_REMEMBERED: Final = 256
"""Fingerprints of a kind that are remembered; where no two steps are alike, each has its own."""

_KEPT_PLANS: Final = 16
"""Plans of a kind that a lake keeps."""

_REFINE_AFTER: Final = 2
"""Planned steps after which a plan that leaves requests out is made anew, with better knowledge of
when they are freed."""


@dataclass(frozen=True)
class StepReport:
    """What one step did on one device. Sizes are in bytes.

    kind: as given to AutoPlan.step(). index: of the step, over all kinds, from 0.
    requests: for memory. foreseen: of those, that met their entry of the plan; served: of those,
    that got the address planned for them; left: foreseen, and left to the policy by the plan, since
    they live for longer than two steps or are small and cost less there. dynamic: in dynamic
    modules; dynamic_served: of those, in planned space that was idle. borrowed: not foreseen, and
    served from idle memory of the pool.
    driver_calls: made during the step. pool_bytes: held for planned addresses; reserved_bytes: held
    in all. is_planned: a plan served.
    """

    device: int
    kind: str
    index: int
    requests: int
    foreseen: int
    served: int
    left: int
    dynamic: int
    dynamic_served: int
    borrowed: int
    driver_calls: int
    pool_bytes: int
    reserved_bytes: int
    fingerprint: int
    is_planned: bool

    @property
    def hit_rate(self) -> float:
        """Which part of the requests that a plan can foresee got the planned address; 0 to 1."""
        plannable = self.requests - self.left - self.dynamic
        return self.served / plannable if plannable else float(self.is_planned)


class Workshop:
    """One thread that makes plans, in the process that asks for the first of them."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    def submit(self, work: Any, *arguments: Any) -> Future[Any]:  # noqa: ANN401 (any function)
        """Do it in the thread; a child of fork() gets a thread of its own."""
        if self._pool is None or self._process != os.getpid():
            self._pool = ThreadPoolExecutor(1, "gmlake-planner")
            self._process = os.getpid()
        return self._pool.submit(work, *arguments)

    def close(self) -> None:
        """Let the thread end."""
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown(wait=True)
        self._pool = None


@dataclass
class _Kind:
    """What is known of the steps of one kind on one device."""

    name: str
    number: int
    watched: int = 0
    seen: Counter[int] = field(default_factory=Counter)  # fingerprints of steps served badly
    tries: Counter[int] = field(default_factory=Counter)  # plans made for them that changed nothing
    plans: dict[int, _core.Plan] = field(default_factory=dict)  # by fingerprint
    planned_steps: Counter[int] = field(default_factory=Counter)  # by fingerprint, served well
    poor_steps: int = 0  # in a row
    is_given_up: bool = False  # only a step that comes back is planned for
    first: _core.Profile | None = None  # of the first step in this process
    first_number: int = 0  # of the kind that has the plan for it; 0: there is none
    first_plan: _core.Plan | None = None
    under_way: Future[Any] | None = None


class DevicePlanner:
    """Steps and plans of one lake."""

    def __init__(  # noqa: PLR0913 (each is a setting of its own)
        self,
        lake: Lake,
        device: int,
        workshop: Workshop,
        *,
        profile_steps: int,
        budget_ms: int,
        replan_below: float,
    ) -> None:
        """Begin to watch. Raises UnsupportedError where the lake's policy has no steps."""
        lake.watch_steps()
        self.lake = lake
        self.device = device
        self._workshop = workshop
        self._profile_steps = profile_steps
        self._budget_ms = budget_ms
        self._replan_below = replan_below
        self._kinds: dict[str, _Kind] = {}
        self._number = 0  # of the kind that the open step has for the lake
        self._lock = threading.Lock()  # guards `plans` of every kind, which the thread adds to

    # ---- plans ----------------------------------------------------------------------------------

    def _kind(self, name: str, number: int) -> _Kind:
        return self._kinds.setdefault(name, _Kind(name, number))

    def add(self, name: str, number: int, plan: _core.Plan) -> None:
        """Let a plan serve steps of a kind from the next one on."""
        kind = self._kind(name, number)
        self.lake.add_plan(number, plan)
        with self._lock:
            fingerprint = plan.describe()["fingerprint"]
            kind.plans.pop(fingerprint, None)
            kind.plans[fingerprint] = plan
            _forget_oldest(kind.plans, _KEPT_PLANS)

    def add_first(self, name: str, number: int, first_number: int, plan: _core.Plan) -> None:
        """Let a plan serve the first step of a kind, which has a number of its own."""
        kind = self._kind(name, number)
        self.lake.add_plan(first_number, plan)
        kind.first_number, kind.first_plan = first_number, plan

    def plans(self) -> dict[str, list[_core.Plan]]:
        """Return the plans by kind, oldest first."""
        with self._lock:
            return {name: list(kind.plans.values()) for name, kind in self._kinds.items()}

    # ---- steps ----------------------------------------------------------------------------------

    def begin(self, name: str, number: int) -> None:
        """Begin a step."""
        kind = self._kind(name, number)
        is_planned_first = kind.watched == 0 and kind.first_number
        self._number = kind.first_number if is_planned_first else number
        self.lake.begin_step(self._number)

    def abandon(self) -> None:
        """End the step, where one is open, and learn nothing from it."""
        with suppress(ValueError):  # there is none
            self.lake.end_step()

    def end(self, name: str, index: int, *, is_whole: bool) -> StepReport:
        """End the step; think about a plan, unless the step was broken off."""
        told = self.lake.end_step()
        kind = self._kinds[name]
        report = StepReport(
            device=self.device,
            kind=name,
            index=index,
            requests=told["requests"],
            foreseen=told["foreseen"],
            served=told["served"],
            left=told["left"],
            dynamic=told["dynamic"],
            dynamic_served=told["dynamic_served"],
            borrowed=told["borrowed"],
            driver_calls=told["driver_calls"],
            pool_bytes=told["pool_bytes"],
            reserved_bytes=told["reserved_bytes"],
            fingerprint=told["fingerprint"],
            is_planned=told["is_planned"],
        )
        if is_whole and report.requests:
            kind.watched += 1
            if kind.watched == 1:
                kind.first = self.lake.profile(self._number)
            if self._needs_plan(kind, report):
                self._plan(kind, report)
            elif self._is_hopeless(kind, report):
                self._drop_plans(kind)
        return report

    def _is_hopeless(self, kind: _Kind, report: StepReport) -> bool:
        is_poor = report.is_planned and report.hit_rate < self._replan_below
        kind.poor_steps = kind.poor_steps + 1 if is_poor else 0
        return kind.poor_steps >= _GIVE_UP_AFTER

    def _drop_plans(self, kind: _Kind) -> None:
        """No step is like another: leave them to the policy until one comes back."""
        self.lake.drop_plans(kind.number)
        with self._lock:
            kind.plans.clear()
        kind.poor_steps = 0
        kind.is_given_up = True
        notices.once(
            f"no two steps {kind.name}",
            f"steps of kind {kind.name!r} differ too much to be planned, and are served by the "
            f"policy; steps of different shapes may be of different kinds, and modules whose "
            f"sizes vary can be named by AutoPlan(dynamic=...)",
        )

    def _needs_plan(self, kind: _Kind, report: StepReport) -> bool:
        if kind.under_way is not None and not kind.under_way.done():
            return False
        fingerprint = report.fingerprint
        if report.is_planned and report.hit_rate >= self._replan_below:
            kind.seen.pop(fingerprint, None)
            kind.tries.pop(fingerprint, None)
            return self._is_worth_refining(kind, report)
        kind.seen[fingerprint] += 1
        _forget_oldest(kind.seen, _REMEMBERED)
        with self._lock:
            has_none = not kind.plans
        if has_none and not kind.is_given_up:
            return kind.watched >= self._profile_steps
        # A plan that did not help is made again, but each time after twice as many steps.
        return kind.seen[fingerprint] >= self._profile_steps << kind.tries[fingerprint]

    def _is_worth_refining(self, kind: _Kind, report: StepReport) -> bool:
        """Whether a plan made early, before all frees had been seen, leaves requests out."""
        fingerprint = report.fingerprint
        kind.planned_steps[fingerprint] += 1
        _forget_oldest(kind.planned_steps, _REMEMBERED)
        return bool(report.left) and kind.planned_steps[fingerprint] == _REFINE_AFTER

    def _plan(self, kind: _Kind, report: StepReport) -> None:
        """Make a plan from the last step; wait for a moment in case that is all it takes."""
        is_refinement = kind.seen.pop(report.fingerprint, 0) == 0
        if not is_refinement:
            kind.tries[report.fingerprint] += 1
            _forget_oldest(kind.tries, _REMEMBERED)
        profile = self.lake.profile(self._number)
        try:
            kind.under_way = self._workshop.submit(self._make, kind, profile, is_refinement)
        except RuntimeError as error:  # no thread is left, or the interpreter ends
            notices.once("planning", f"steps of kind {kind.name!r} are not planned: {error}")
            return
        with suppress(TimeoutError, FutureTimeoutError):
            kind.under_way.result(_SHORT_SECONDS)

    def _make(self, kind: _Kind, profile: _core.Profile, is_refinement: bool) -> None:  # noqa: FBT001
        """Make a plan. In the workshop's thread: a failure is told, and the step is not planned."""
        try:
            plan = _core.Plan.build(profile, budget_ms=self._budget_ms)
            with self._lock:
                known = kind.plans.get(plan.describe()["fingerprint"])
            if not (is_refinement and known and _placed(plan) <= _placed(known)):
                self.add(kind.name, kind.number, plan)
        except (Error, ValueError, MemoryError) as error:
            notices.once("planning", f"steps of kind {kind.name!r} are not planned: {error}")

    def first_plans(self) -> dict[str, _core.Plan]:
        """Return by kind a plan for the first step of a process, which makes what then stays."""
        plans = {}
        for name, kind in self._kinds.items():
            if kind.first:
                plans[name] = _core.Plan.build(kind.first, budget_ms=self._budget_ms)
            elif kind.first_plan:
                plans[name] = kind.first_plan
        return plans

    def wait(self) -> None:
        """Wait for plans that are under way."""
        for kind in self._kinds.values():
            if kind.under_way is not None:
                kind.under_way.result()

    def close(self) -> None:
        """Let no plan serve from here on. pre: none is under way."""
        for kind in self._kinds.values():
            self.lake.drop_plans(kind.number)
            if kind.first_number:
                self.lake.drop_plans(kind.first_number)


def _forget_oldest(table: dict[int, Any], most: int) -> None:
    """Drop what was inserted first where there are more than so many."""
    if len(table) > most:
        del table[next(iter(table))]


def _placed(plan: _core.Plan) -> int:
    return int(plan.describe()["placed"])
