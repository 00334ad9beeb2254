"""AutoPlan: watch a few training steps, plan where each tensor goes, and serve the plan."""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import zlib
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

import gmlake
from gmlake.errors import PlanError, UnsupportedError
from gmlake.planning import files
from gmlake.pytorch import full, lakes, notices, phases
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
    Where an AutoPlan is used from several threads at the same time, only one may have a step open.
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
        """Check the settings and enable gmlake. Raises ValueError and TypeError."""
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
        self._open: _Step | None = None
        self._index = 0
        self._reports: deque[StepReport] = deque(maxlen=_HISTORY)
        self._watcher = phases.Watcher(self, dynamic)
        self._watcher.watch_optimizers()
        if model is not None:
            self._watcher.watch_model(model)
        else:
            self._watcher.discover_models()
        if not gmlake.is_enabled():
            gmlake.enable()

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
        if self._open is not None:
            raise RuntimeError(f"a step of kind {self._open.kind!r} is open already")
        self._find_lakes()
        self._open = step
        self._watcher.begin_step()
        number = _kind_number(step.kind)
        for planner in self._planners.values():
            planner.begin(step.kind, number)
        phases.add_sink(self)

    def _end(self, step: _Step, *, is_whole: bool) -> None:
        if self._open is not step:
            return
        phases.remove_sink(self)
        self._watcher.end_step()
        if self._watcher.has_models:
            self._watcher.stop_discovery()
        self._open = None
        index, self._index = self._index, self._index + 1
        for planner in self._planners.values():
            self._reports.append(planner.end(step.kind, index, is_whole=is_whole))

    def _find_lakes(self) -> None:
        """Watch the lakes that came into being since the last step."""
        if not full.is_installed():
            notices.once(
                "planning",
                "steps are not planned, which needs mode full: call gmlake.enable() before "
                "anything uses CUDA, or start the program with `gmlake run`",
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
        """Take the hooks away and stop planning. What was planned goes on to serve nothing."""
        if self._open is not None:
            self._end(self._open, is_whole=False)
        self._watcher.close()
        self._workshop.close()

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
        files.save_plans(target, saved, _made_for(sorted({plan.device for plan in saved})))
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
        Raises PlanError for a file that is damaged or of another version, and OSError.
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
            name, number = saved.kind.removesuffix(_FIRST), _kind_number(saved.kind)
            add = planner.add_first if saved.kind.endswith(_FIRST) else planner.add
            add(name, number, saved.plan)


class _Step:
    """One step of an AutoPlan; made by AutoPlan.step()."""

    def __init__(self, auto: AutoPlan, kind: str) -> None:
        """Begin nothing yet."""
        self._auto = auto
        self.kind = kind

    def __enter__(self) -> Self:
        """Begin the step. Raises RuntimeError where one is open already."""
        self._auto._begin(self)  # noqa: SLF001
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the step. One that an exception breaks off is not planned for."""
        self._auto._end(self, is_whole=kind is None)  # noqa: SLF001


def _at_least_one(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} is {value}, but must be 1 or more")
    return value


def _kind_number(name: str) -> int:
    return zlib.crc32(name.encode())


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


def _made_for(devices: list[int]) -> files.MadeFor:
    rank, world = _place()
    return files.MadeFor(
        rank=rank,
        world_size=world,
        devices={device: _describe_device(device) for device in devices},
        torch=str(torch.__version__),
    )
