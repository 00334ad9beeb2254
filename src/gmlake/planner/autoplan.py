"""AutoPlan: watch a few training steps, plan where each tensor goes, and serve the plan."""

# mypy: allow-untyped-calls

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

import gmlake
from gmlake.errors import UnsupportedError
from gmlake.planner import plan_files
from gmlake.planner.device_planner import DevicePlanner, StepReport
from gmlake.planner.plan_errors import PlanError
from gmlake.pytorch import lakes, native, notices
from gmlake.pytorch.device import place

if TYPE_CHECKING:
    from typing_extensions import Self

_HISTORY: Final = 1024
_FIRST: Final = " (first step)"
"""In plan files: the plan for the first step of a kind, in which the optimizer makes its state."""


class AutoPlan:
    """Plans the memory of training steps.

        auto = gmlake.AutoPlan()
        for batch in loader:
            with auto.step():
                train_on(batch)

    Steps are served as usual, and watched, until two were served in exactly the same way. From then
    on each request of such a step gets the address it had, without a search. Steps with any other
    requests are served as usual: with or without AutoPlan, they use the same memory and make the
    same driver calls. `last` tells whether the last step was planned, and why not.

    gmlake is enabled, for the rest of the process, unless it is already. Plans need the policy
    "stitch" or "plan"; under others, steps are served as usual, and a GmlakeWarning says why. One
    step can be open at a time, over all AutoPlans of the process and all threads.
    """

    def __init__(self) -> None:
        """Enable gmlake."""
        self._planners: dict[int, DevicePlanner] = {}
        self._refused: set[int] = set()
        self._saved: list[plan_files.SavedPlan] = []  # read from a file, for devices not used yet
        self._saved_for = plan_files.MadeFor()
        self._numbers: dict[str, int] = {}  # kinds of steps, as lakes know them
        self._is_closed = False
        self._index = 0
        self._reports: deque[StepReport] = deque(maxlen=_HISTORY)
        if not gmlake.is_enabled():
            gmlake.enable()
        _all.add(self)

    # ---- steps ----------------------------------------------------------------------------------

    def step(self, kind: str = "train") -> _Step:
        """Return a context manager that is one step.

        kind: steps of one kind are much alike; training and evaluation are not. Steps of the same
        kind with other shapes (sequence lengths) get plans of their own once they come back.
        """
        if not isinstance(kind, str):
            raise TypeError(f"a kind of step has a name, as in step('evaluation'), not {kind!r}")
        return _Step(self, kind)

    def _begin(self, step: _Step) -> None:
        if self._is_closed:
            raise RuntimeError("this AutoPlan is closed")
        try:
            _turn.take(step)
            self._find_lakes()
            for planner in self._planners.values():
                planner.begin(step.kind, self._number(step.kind))
        except BaseException:
            if _turn.is_of(step) and not step.is_entered:
                self._abandon()
            raise

    def _abandon(self) -> None:
        """Leave the step, even if its begin or end was interrupted halfway."""
        for planner in self._planners.values():
            planner.abandon()
        self._leave()

    def _end(self, step: _Step) -> None:
        if not _turn.is_of(step):
            return
        try:
            index, self._index = self._index, self._index + 1
            for planner in self._planners.values():
                number = self._number(step.kind)
                self._reports.append(planner.end(step.kind, number, index))
        finally:
            self._leave()

    def _leave(self) -> None:
        """Leave the step. pre: one of this AutoPlan is open."""
        _turn.give()

    def _number(self, kind: str) -> int:
        if kind not in self._numbers:
            self._numbers[kind] = next(_kind_numbers)
        return self._numbers[kind]

    def _find_lakes(self) -> None:
        """Watch the lakes that were created since the last step."""
        if not native.is_installed():
            if torch.cuda.is_initialized():
                notices.once(
                    "planning",
                    "steps are not planned, since gmlake serves nothing: call gmlake.enable()",
                )
            return
        for device in lakes.devices():
            if device in self._planners or device in self._refused:
                continue
            lake = lakes.find(device)
            if lake is None:
                continue
            try:
                self._planners[device] = planner = DevicePlanner(lake, device)
            except UnsupportedError as error:
                self._refused.add(device)
                notices.once("planning", f"steps are not planned on device {device}: {error}")
            else:
                self._hand_out_saved(planner)

    # ---- results --------------------------------------------------------------------------------

    @property
    def reports(self) -> list[StepReport]:
        """The last 1024 steps, one entry for each device, oldest first."""
        return list(self._reports)

    @property
    def last(self) -> StepReport | None:
        """The last step, on the device used first."""
        index = self._index - 1
        return next((report for report in self._reports if report.index == index), None)

    def __repr__(self) -> str:
        """Describe the last step of each device and kind."""
        lines = [
            f"device {planner.device}, {kind}: {report.why}, {report.served:,} of "
            f"{report.requests:,} requests by a plan"
            for planner in self._planners.values()
            for kind, report in planner.reports.items()
        ]
        return f"<gmlake.AutoPlan: {'; '.join(lines) or 'no step yet'}>"

    def close(self) -> None:
        """Stop serving by plans. No step can begin afterwards."""
        step = _turn.step
        if step is not None and step.auto is self:
            self._end(step)
        elif _turn.auto is self:
            self._abandon()
        self._is_closed = True
        for planner in self._planners.values():
            planner.close()
        self._planners.clear()

    def _forget_lakes(self) -> None:
        """Leave the lakes alone in a forked child: another thread may have held their locks."""
        self._planners.clear()

    # ---- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write plans to a file, so that load() serves the next run from its first step.

        One plan for each kind whose last step was planned, and one for its first step. "{rank}" and
        "{world}" in the path stand for those of torch.distributed, or 0 and 1. Returns the path.
        Raises PlanError if nothing is planned yet, and OSError.
        """
        saved = [
            plan_files.SavedPlan(planner.device, kind, plan)
            for planner in self._planners.values()
            for kind, plan in planner.plans().items()
        ]
        if not saved and not self._saved:
            last = f" (the last: {self.last.why})" if self.last else ""
            raise PlanError(f"no step is planned yet{last}; run a few more before saving")
        saved += [
            plan_files.SavedPlan(planner.device, kind + _FIRST, plan)
            for planner in self._planners.values()
            for kind, plan in planner.first_plans().items()
        ]
        saved += self._saved
        target = _fill_in(path)
        here = {device: _describe_device(device) for device in self._planners}
        plan_files.save_plans(target, saved, _made_for({**self._saved_for.devices, **here}))
        return target

    @classmethod
    def load(cls, path: str | Path, *, missing_ok: bool = False) -> Self:
        """Return an AutoPlan that begins with the plans of a file that save() wrote.

        Plans for another rank, world size or kind of device are not used: a GmlakeWarning says so,
        and steps are watched and planned as without a file. missing_ok: the same without a file.
        Raises PlanError for a file that is missing, damaged or of another version.
        """
        auto = cls()
        source = _fill_in(path)
        try:
            if not (missing_ok and not source.exists()):
                auto._take(plan_files.load_plans(source))
        except BaseException:
            auto.close()
            raise
        return auto

    def _take(self, loaded: plan_files.PlanFile) -> None:
        """Keep the plans of a file that fit this process."""
        rank, world = place()
        if (loaded.made_for.rank, loaded.made_for.world_size) != (rank, world):
            notices.once(
                "plan file",
                f"the plans were made for rank {loaded.made_for.rank} of "
                f"{loaded.made_for.world_size}, this is rank {rank} of {world}; planning anew",
            )
            return
        self._saved = list(loaded.plans)
        self._saved_for = loaded.made_for

    def _hand_out_saved(self, planner: DevicePlanner) -> None:
        mine = [saved for saved in self._saved if saved.device == planner.device]
        self._saved = [saved for saved in self._saved if saved.device != planner.device]
        if not mine:
            return
        made_for = self._saved_for.devices.get(planner.device)
        here = _describe_device(planner.device)
        if made_for and made_for != here:
            notices.once(
                f"plan file {planner.device}",
                f"the plans for device {planner.device} were made on {made_for}, this is {here}; "
                f"planning anew",
            )
            return
        for saved in mine:
            name = saved.kind.removesuffix(_FIRST)
            if name == saved.kind:
                planner.add(name, self._number(name), saved.plan)
            else:
                planner.add_first(name, self._number(saved.kind), saved.plan)


class _Step:
    """One step of an AutoPlan; made by AutoPlan.step()."""

    def __init__(self, auto: AutoPlan, kind: str) -> None:
        self.auto = auto
        self.kind = kind
        self.is_entered = False

    def __enter__(self) -> Self:
        """Begin the step. Raises RuntimeError if a step of any AutoPlan is open already."""
        self.auto._begin(self)  # noqa: SLF001
        self.is_entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_entered = False
        self.auto._end(self)  # noqa: SLF001


class _Turn:
    """The open step: lakes belong to the process, and know one step at a time.

    An interrupt may come at any instant, even between the last line of a begin and the block behind
    it, so that the end is never called. So the step is referenced weakly: it is over once it is
    collected, or if its own thread began it without entering it. The next step then ends it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.auto: AutoPlan | None = None
        self._step: weakref.ref[_Step] | None = None
        self._thread = 0

    @property
    def step(self) -> _Step | None:
        """The step that is open."""
        return self._step() if self._step is not None else None

    def is_of(self, step: _Step) -> bool:
        """Whether this is the open step."""
        return self._step is not None and self._step() is step

    def take(self, step: _Step) -> None:
        """Open a step. Raises RuntimeError if one is open."""
        with self._lock:
            held = self.step
            thread = threading.get_ident()
            if held is not None and (held.is_entered or self._thread != thread):
                raise RuntimeError(f"a step of kind {held.kind!r} is open already")
            if self.auto is not None:
                self.auto._abandon()  # noqa: SLF001
            self.auto, self._thread = step.auto, thread
            step.is_entered = False
            self._step = weakref.ref(step)

    def give(self) -> None:
        """Close the open step."""
        self._step = None
        self.auto = None


_turn = _Turn()
_kind_numbers = itertools.count(1)
_all: weakref.WeakSet[AutoPlan] = weakref.WeakSet()


def _after_fork() -> None:
    global _turn  # noqa: PLW0603
    _turn = _Turn()
    for auto in _all:
        auto._forget_lakes()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)


def _fill_in(path: str | Path) -> Path:
    rank, world = place()
    text = str(path).replace("{rank}", str(rank)).replace("{world}", str(world))
    return Path(text)


def _describe_device(device: int) -> str:
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory} bytes"


def _made_for(devices: dict[int, str]) -> plan_files.MadeFor:
    rank, world = place()
    return plan_files.MadeFor(
        rank=rank,
        world_size=world,
        devices=devices,
        torch=str(torch.__version__),
    )


def steps_of_trainer(plan: AutoPlan | bool) -> AutoPlan:  # noqa: FBT001 (as a callback takes it)
    """Return the AutoPlan for the steps of a trainer: the given one, or for True a new one."""
    if not isinstance(plan, bool | AutoPlan):
        raise TypeError(f"plan is True, False or a gmlake.AutoPlan, not {plan!r}")
    return AutoPlan() if isinstance(plan, bool) else plan
