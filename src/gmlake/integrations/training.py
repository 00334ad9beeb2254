"""Shared by all trainers' callbacks: plan steps, measure, draw a page at the end.

A trainer may not report that its training failed. So a process has one open training at a time,
which ends when the next one begins or the process exits.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import torch

import gmlake
from gmlake import annexes
from gmlake.errors import Error, UnsupportedError
from gmlake.pictures.page import write_page
from gmlake.pytorch import device, notices
from gmlake.pytorch.device import place
from gmlake.pytorch.recording import record
from gmlake.snapshots.whole import Snapshot, report_of

TRAIN: Final = "train"
_GIB: Final = 1 << 30
_LINES: Final = {
    "memory/live_gib": "allocated_bytes.all.current",
    "memory/live_peak_gib": "allocated_bytes.all.peak",
    "memory/reserved_gib": "reserved_bytes.all.current",
    "memory/reserved_peak_gib": "reserved_bytes.all.peak",
}


class Training:
    """A training by another library's loop, which reports its progress here.

    page: a file to write at the end, such as "memory.html"; with several processes the name
    includes the rank, "memory-rank3.html". plan: True, or an object with steps, for an annex that
    plans them. Raises FileNotFoundError if the folder of the page does not exist, TypeError for any
    other plan, UnsupportedError if no annex plans.
    """

    def __init__(self, page: str | Path | None, plan: object) -> None:
        if page is not None and not Path(page).parent.is_dir():
            raise FileNotFoundError(f"page={str(page)!r}: there is no folder {Path(page).parent}")
        self._wanted = None if page is None else Path(page).absolute()
        self._page: Path | None = None  # with the rank, which is known when training begins
        self.plan: Any = None if plan is False else _planned(plan)
        self._recording: Any = None
        self._step: AbstractContextManager[object] | None = None

    # ---- from begin to end -----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin, ending any open training."""
        _process.end()
        _process.open = self
        if not gmlake.is_enabled():
            notices.once(
                "integrations",
                "gmlake serves nothing here, so memory lines and pages are of PyTorch's own "
                "allocator; for gmlake's, call gmlake.enable() or use `gmlake run`",
            )
        if self._wanted is not None:
            self._page = _of_this_rank(self._wanted)
            absence = device.absence()
            if absence:
                notices.once("integrations page", f"no {self._page} will be written: {absence}")
            else:
                self._recording = record()

    def end(self) -> None:
        """End the open training, if any, and write the page, which does not raise."""
        if _process.open is self:
            _process.open = None
        self.end_step()
        recording, self._recording = self._recording, None
        if recording is not None and self._page is not None:
            recording.stop()
            _write(recording.snapshot, self._page)

    # ---- steps -------------------------------------------------------------------

    def begin_step(self) -> None:
        """Begin a step of training that is planned, unless one is open."""
        if self._step is None and self.plan is not None:
            step = self.plan.step(TRAIN)
            step.__enter__()
            self._step = step

    def end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    # ---- figures ---------------------------------------------------------------------------------

    def lines(self) -> dict[str, float]:
        """Return the values to log for the current device: GiB, and the planned share of a step.

        Peaks are since the process began, or since the program reset them. Empty where CUDA is not
        in use.
        """
        if not torch.cuda.is_initialized():
            notices.once("integrations lines", "CUDA is not in use, so memory is not logged")
            return {}
        stats = torch.cuda.memory_stats()
        lines = {name: stats.get(key, 0) / _GIB for name, key in _LINES.items()}
        if self.plan is not None and self.plan.last is not None:
            lines["memory/planned"] = self.plan.last.hit_rate
        return lines


def _planned(plan: object) -> Any:  # noqa: ANN401 (an annex has its type)
    for make in annexes.hooked("trainer steps"):
        return make(plan)
    raise UnsupportedError("this installation of gmlake does not plan steps; leave out plan")


class _Process:
    """The training that is open in this process, if any."""

    def __init__(self) -> None:
        self.open: Training | None = None

    def end(self) -> None:
        if self.open is not None:
            self.open.end()

    def forget(self) -> None:
        self.open = None


_process: Final = _Process()
atexit.register(_process.end)
os.register_at_fork(after_in_child=_process.forget)


def _of_this_rank(page: Path) -> Path:
    rank, world = place()
    return page if world == 1 else page.with_name(f"{page.stem}-rank{rank}{page.suffix}")


def _write(seen: Snapshot | None, page: Path) -> None:
    """Write a page and print its name. Errors are printed, too: they must not end a training."""
    if seen is None or not seen.devices:
        notices.say(f"no {page}: no device memory was requested")
        return
    try:
        write_page(report_of(seen), page)
    except (OSError, Error) as error:
        notices.say(f"{page} could not be written: {error}")
    else:
        notices.say(f"memory of this training: {page}")
