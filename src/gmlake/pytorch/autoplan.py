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
from gmlake.errors import PlanError, UnsupportedError
from gmlake.planning import files
from gmlake.pytorch import lakes, notices, phases, serving
from gmlake.pytorch.planner import DevicePlanner, StepReport, Workshop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from torch import nn
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

    The first steps are served as ever, and watched. Then each request of a step has its place,
    which it gets without a search; what a plan did not foresee is served by the policy, as ever.
    Steps that change are planned anew, and several plans live side by side.

    model: whose passes are the phases of a step, and whose dynamic modules are kept out of the
        plan; None: every module that is called from outside of any other.
    profile_steps: how many steps of a kind to watch before the first plan, from 1. With 1, what is
        still live at the end of the step is not planned.
    budget_ms: how long one plan may take, about. Longer than a few ms, it is made in a thread
        beside the next steps.
    dynamic: modules whose tensors have other sizes in each step, such as a mixture of experts:
        patterns of names and class names, as in fnmatch, and modules. What they ask for is served
        from planned space that is idle meanwhile.
    replan_below: a planned step with a lower hit rate makes its kind of step a candidate for a plan
        of its own.

    gmlake is enabled, for the rest of the process, unless it is already. Plans need mode "full" and
    the policy "stitch" or "plan"; elsewhere steps are served as ever, and a GmlakeWarning says why.
    One step can be open at a time, over all AutoPlans of the process and all threads.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        profile_steps: int = 2,
        budget_ms: int = 1000,
        dynamic: Iterable[str | nn.Module] = phases.DYNAMIC,
        replan_below: float = 0.95,
    ) -> None:
        """Check the settings, enable gmlake, watch the model. Raises ValueError and TypeError."""
        self._profile_steps = _at_least_one("profile_steps", profile_steps)
        self._budget_ms = _at_least_one("budget_ms", budget_ms)
        if not 0 <= replan_below <= 1:
            raise ValueError(f"replan_below is a part of 1, not {replan_below}")
        if isinstance(dynamic, str):
            raise TypeError(f"dynamic is a list of patterns and modules, not {dynamic!r}")
        self._replan_below = replan_below
        self._workshop = Workshop()
        self._planners: dict[int, DevicePlanner] = {}
        self._refused: set[int] = set()
        self._saved: list[files.SavedPlan] = []  # read from a file, for devices not used yet
        self._saved_for = files.MadeFor()
        self._numbers: dict[str, int] = {}  # kinds of steps, as lakes know them
        self._is_closed = False
        self._index = 0
        self._reports: deque[StepReport] = deque(maxlen=_HISTORY)
        self._watcher = phases.Watcher(self, dynamic)
        if not gmlake.is_enabled():
            gmlake.enable()
        if model is not None:
            self._watcher.watch_model(model)
        else:
            self._watcher.discover_models()
        self._watcher.watch_optimizers()
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
            self._watcher.begin_step()
            for planner in self._planners.values():
                planner.begin(step.kind, self._number(step.kind))
            phases.add_sink(self)
        except BaseException:
            if _turn.is_of(step) and not step.is_entered:
                self._abandon()
            raise

    def _abandon(self) -> None:
        """Be in no step, however far its begin or end came before it was broken off."""
        for planner in self._planners.values():
            planner.abandon()
        self._leave()

    def _end(self, step: _Step, *, is_whole: bool) -> None:
        if not _turn.is_of(step):
            return
        try:
            if self._watcher.has_models:
                self._watcher.stop_discovery()
            index, self._index = self._index, self._index + 1
            for planner in self._planners.values():
                self._reports.append(planner.end(step.kind, index, is_whole=is_whole))
        finally:
            self._leave()

    def _leave(self) -> None:
        """Be in no step. pre: one of this AutoPlan is open."""
        phases.remove_sink(self)
        self._watcher.end_step()
        _turn.give()

    def _number(self, kind: str) -> int:
        if kind not in self._numbers:
            self._numbers[kind] = next(_kind_numbers)
        return self._numbers[kind]

    def _find_lakes(self) -> None:
        """Watch the lakes that came into being since the last step."""
        if not serving.installed():
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
                self._planners[device] = planner = DevicePlanner(
                    lake,
                    device,
                    self._workshop,
                    profile_steps=self._profile_steps,
                    budget_ms=self._budget_ms,
                    replan_below=self._replan_below,
                )
            except UnsupportedError as error:
                self._refused.add(device)
                notices.once("planning", f"steps are not planned on device {device}: {error}")
            else:
                self._hand_out_saved(planner)

    # ---- what the program is at -----------------------------------------------------------------

    def enter_phase(self, number: int) -> None:
        """Tell every lake; see gmlake.phase()."""
        for planner in self._planners.values():
            planner.lake.enter_phase(number)

    def enter_scope(self, number: int) -> None:
        """Tell every lake that a dynamic module begins, or with 0 that it has ended."""
        for planner in self._planners.values():
            planner.lake.enter_scope(number)

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

    def wait(self) -> None:
        """Wait for plans that are being made beside the training."""
        for planner in self._planners.values():
            planner.wait()

    def __repr__(self) -> str:
        """Say for each device and kind what is planned and how well it serves."""
        lines = [line for planner in self._planners.values() for line in self._lines(planner)]
        body = "; ".join(lines) or "no step yet"
        return f"<gmlake.AutoPlan: {body}>"

    def _lines(self, planner: DevicePlanner) -> Iterator[str]:
        for kind, plans in planner.plans().items():
            reports = [
                report
                for report in self._reports
                if report.kind == kind and report.device == planner.device
            ]
            rate = f", last hit rate {reports[-1].hit_rate:.1%}" if reports else ""
            yield f"device {planner.device}, {kind}: {len(plans)} plans{rate}"

    def close(self) -> None:
        """Take the hooks away and let no plan serve any more. No step can begin then."""
        step = _turn.step
        if step is not None and step.auto is self:
            self._end(step, is_whole=False)
        elif _turn.auto is self:
            self._abandon()
        self._is_closed = True
        self._watcher.close()
        self._workshop.close()
        for planner in self._planners.values():
            planner.close()
        self._planners.clear()

    def _forget_lakes(self) -> None:
        """Leave the lakes alone in a forked child: another thread may have held their locks."""
        self._planners.clear()
        self._watcher.end_step()

    # ---- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write all plans to a file, so that load() serves the next run from its first step.

        "{rank}" and "{world}" in the path stand for those of torch.distributed, or 0 and 1. Returns
        the path. Raises PlanError where there is no plan yet, and OSError.
        """
        self.wait()
        saved = [
            files.SavedPlan(planner.device, kind, plan)
            for planner in self._planners.values()
            for kind, plans in planner.plans().items()
            for plan in plans
        ]
        if not saved and not self._saved:
            raise PlanError("there is no plan yet; run a few more steps before saving")
        saved += [
            files.SavedPlan(planner.device, kind + _FIRST, plan)
            for planner in self._planners.values()
            for kind, plan in planner.first_plans().items()
        ]
        saved += self._saved
        target = _fill_in(path)
        here = {device: _describe_device(device) for device in self._planners}
        files.save_plans(target, saved, _made_for({**self._saved_for.devices, **here}))
        return target

    @classmethod
    def load(  # noqa: PLR0913 (each is a setting of its own)
        cls,
        path: str | Path,
        model: nn.Module | None = None,
        *,
        missing_ok: bool = False,
        profile_steps: int = 2,
        budget_ms: int = 1000,
        dynamic: Iterable[str | nn.Module] = phases.DYNAMIC,
        replan_below: float = 0.95,
    ) -> Self:
        """Return an AutoPlan that begins with the plans of a file that save() wrote.

        Plans for another rank, world size or kind of device are not used: a GmlakeWarning says so,
        and steps are watched and planned as without a file. missing_ok: the same without a file.
        Raises PlanError for a file that is missing, damaged or of another version.
        """
        auto = cls(
            model,
            profile_steps=profile_steps,
            budget_ms=budget_ms,
            dynamic=dynamic,
            replan_below=replan_below,
        )
        source = _fill_in(path)
        try:
            if not (missing_ok and not source.exists()):
                auto._take(files.load_plans(source))
        except BaseException:
            auto.close()
            raise
        return auto

    def _take(self, loaded: files.PlanFile) -> None:
        """Keep the plans of a file that fit to this process."""
        rank, world = _place()
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
                planner.add_first(name, self._number(name), self._number(saved.kind), saved.plan)


class _Step:
    """One step of an AutoPlan; made by AutoPlan.step()."""

    def __init__(self, auto: AutoPlan, kind: str) -> None:
        """Begin nothing yet."""
        self.auto = auto
        self.kind = kind
        self.is_entered = False

    def __enter__(self) -> Self:
        """Begin the step. Raises RuntimeError where one is open already, of any AutoPlan."""
        self.auto._begin(self)  # noqa: SLF001
        self.is_entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the step. One that an exception breaks off is not planned for."""
        self.is_entered = False
        self.auto._end(self, is_whole=kind is None)  # noqa: SLF001


class _Turn:
    """Whose step is open: lakes belong to the process, and know one step at a time.

    An interrupt may come at any instant, also between the last line of a begin and the block behind
    it, and then nobody calls the end. So the step is held weakly: one that is gone is over, and so
    is one that its own thread began and did not come to enter. Whoever comes next ends it.
    """

    def __init__(self) -> None:
        """Nobody's."""
        self._lock = threading.RLock()
        self.auto: AutoPlan | None = None
        self._step: weakref.ref[_Step] | None = None
        self._thread = 0

    @property
    def step(self) -> _Step | None:
        """The step that is open."""
        return self._step() if self._step is not None else None

    def is_of(self, step: _Step) -> bool:
        """Whether that step is open."""
        return self._step is not None and self._step() is step

    def take(self, step: _Step) -> None:
        """Open a step. Raises RuntimeError where one is open."""
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
    phases.remove_sinks()
    for auto in _all:
        auto._forget_lakes()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)


def _at_least_one(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} is {value}, but must be 1 or more")
    return value


def _place() -> tuple[int, int]:
    """Return the rank and the world size of this process."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _fill_in(path: str | Path) -> Path:
    rank, world = _place()
    text = str(path).replace("{rank}", str(rank)).replace("{world}", str(world))
    return Path(text)


def _describe_device(device: int) -> str:
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory} bytes"


def _made_for(devices: dict[int, str]) -> files.MadeFor:
    rank, world = _place()
    return files.MadeFor(
        rank=rank,
        world_size=world,
        devices=devices,
        torch=str(torch.__version__),
    )
