"""Records one process of `gmlake run --record FOLDER`, for a report about all of them.

A step of the program is one call of the optimizer that was called first. As a step ends, its peaks
are added to a curve; only where memory rose to a new peak, PyTorch's history is asked who holds it.
The file is written whole as the process starts, now and then as steps end, at a refusal and at its
end, so that a process which is killed leaves what was known then.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import _thread
import os
import socket
import sys
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import gmlake
from gmlake import _core, owned
from gmlake.allocator_conf import VARIABLES
from gmlake.jobs import summary
from gmlake.jobs.summary import MOST_LINES, MOST_TEXT, Line, Steps
from gmlake.pytorch import compat, device, notices, session
from gmlake.pytorch.locking import process_lock
from gmlake.pytorch.session_settings import POLICY, Settings
from gmlake.pytorch.step_peaks import StepPeaks
from gmlake.snapshots.frames import named_frame
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.queries import row_of
from gmlake.snapshots.sites import Site
from gmlake.snapshots.situations import verdict_of
from gmlake.snapshots.whole import load
from gmlake.trace.layout import Kind

MOST_EVENTS: Final = 50_000
"""Events that PyTorch keeps on each device: those of the last step, if it has no more."""

_EACH_S: Final = 10.0
"""The longest time between two files, where steps are shorter; also after 1, 2, 4, ... steps."""

_RISE: Final = 1.02
"""How much higher than the last one a peak is whose holders are looked for again."""


@dataclass
class _Seen:
    """What is known of one device."""

    live_bytes: int = 0
    reserved_bytes: int = 0
    used_bytes: int = 0
    now: tuple[int, int] = (0, 0)  # peaks of the step that is not over
    refused: int = 0
    steps: Steps = field(default_factory=Steps)
    sought_bytes: int = 0  # live as it was last asked who holds it
    held_bytes: int = 0  # live at the moment of `lines`
    lines: tuple[summary.Line, ...] = ()


class _Recorder:
    """What this process knows of itself; its lock guards all."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._lock = process_lock()
        self._process = os.getpid()
        self._started = time.time()
        self._first: weakref.ref[Any] | None = None  # the optimizer whose calls are steps
        self._steps = 0
        self._written_s = 0.0
        self._devices: defaultdict[int, _Seen] = defaultdict(_Seen)
        self._refusals: list[summary.Refusal] = []
        self._is_broken = False

    def start(self) -> None:
        """Begin; called as CUDA starts."""
        self._process, self._started = os.getpid(), time.time()
        self._peaks = StepPeaks()
        if not compat.is_recording_history():
            compat.record_history(MOST_EVENTS)
        compat.watch_refusals(self._refused)
        register_optimizer_step_post_hook(self._stepped)
        Finalize(None, self._end, exitpriority=0)
        self._safely(lambda: self._write(summary.RUNNING))

    # ---- what happens ---------------------------------------------------------------------------

    def _safely(self, work: Callable[[], None]) -> None:
        """Do it, unless this is a child by fork; whatever fails, the program goes on."""
        if os.getpid() != self._process or self._is_broken:
            return
        try:
            with self._lock:
                work()
        except OSError as error:
            self._stop(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 (the program knows nothing of this)
            self._stop(f"{type(error).__name__}: {error}")

    def _stop(self, why: str) -> None:
        self._is_broken = True
        notices.say(f"{self._folder}: the memory of this process is not recorded: {why}")

    def _stepped(self, optimizer: object, *_: object) -> None:
        if torch.compiler.is_compiling():
            return
        first = self._first() if self._first is not None else None
        if first is None:
            self._first = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        self._safely(self._end_step)

    def _end_step(self) -> None:
        self._look()
        for seen in self._devices.values():
            seen.steps.add(*seen.now)
            seen.now = (0, 0)
        self._steps += 1
        is_early = self._steps & (self._steps - 1) == 0
        if is_early or time.monotonic() - self._written_s > _EACH_S:
            self._write(summary.RUNNING)

    def _refused(self, number: int, size_bytes: int, _limit_bytes: int, free_bytes: int) -> None:
        """Note a refusal; called inside PyTorch's allocator, so it must not raise."""
        try:
            self._safely(lambda: self._note(number, size_bytes, free_bytes))
        except KeyboardInterrupt:
            _thread.interrupt_main()

    def _note(self, number: int, size_bytes: int, free_bytes: int) -> None:
        seen = self._devices[number]
        seen.refused += 1
        if len(self._refusals) < summary.MOST_REFUSALS:
            figures = self._peaks.figures(number)
            frame, account = self._find_holders(number, "refusal"), _core.torch_refusal()
            refusal = summary.Refusal(
                device=number,
                step=self._steps,
                size_bytes=size_bytes,
                device_free_bytes=free_bytes,
                live_bytes=figures["allocated_bytes"]["all"]["current"],
                reserved_bytes=figures["reserved_bytes"]["all"]["current"],
                frame=frame[: summary.MOST_TEXT],
                why="" if account is None else verdict_of(account)[: summary.MOST_TEXT],
            )
            self._refusals.append(refusal)
            self._look()
            self._write(summary.RUNNING)

    def _end(self) -> None:
        error = getattr(sys, "last_value", None)
        self._safely(lambda: self._close(error))

    def _close(self, error: BaseException | None) -> None:
        self._look()
        if error is None:
            self._write(summary.ENDED)
        else:
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            self._write(summary.RAISED, said[: summary.MOST_TEXT])
        if device.place()[0] == 0 and not self._is_broken:
            notices.say(f"the memory of each rank is recorded: gmlake report {self._folder}")

    # ---- what is known --------------------------------------------------------------------------

    def _look(self) -> None:
        """Take the peaks since the last look; find who held them where they are new."""
        for number in range(torch.cuda.device_count()):
            if not compat.is_in_use(number):
                continue
            live, reserved = self._peaks.look(number)
            if not reserved and number not in self._devices:
                continue
            seen = self._devices[number]
            seen.now = max(seen.now[0], live), max(seen.now[1], reserved)
            seen.live_bytes = max(seen.live_bytes, live)
            seen.reserved_bytes = max(seen.reserved_bytes, reserved)
            if live > _RISE * seen.sought_bytes:
                seen.sought_bytes = live
                self._find_holders(number, "peak")

    def _find_holders(self, number: int, moment: str) -> str:
        """Keep who held most at a moment of the last events; return the frame of the refusal."""
        if not compat.is_recording_history():
            return ""
        found = holders_of(compat.memory_snapshot(), number, moment)
        seen = self._devices[number]
        if found.live_bytes > seen.held_bytes:
            seen.held_bytes, seen.lines = found.live_bytes, found.lines
        return found.frame

    def _write(self, state: str, error: str = "") -> None:
        rank, world = device.place()
        is_known = world > 1 or "RANK" in os.environ
        data = summary.Summary(
            rank=rank if is_known else -1,
            local_rank=int(os.environ.get("LOCAL_RANK", "-1")),
            world=world,
            host=socket.gethostname()[: summary.MOST_TEXT],
            pid=self._process,
            job=_job(),
            restart=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            started=self._started,
            written=time.time(),
            steps=self._steps,
            state=state,
            error=error,
            gmlake=gmlake.__version__,
            torch=torch.__version__,
            policy=_policy(),
            settings=_settings(),
            devices=tuple(self._device(number) for number in sorted(self._devices)),
            refusals=tuple(self._refusals),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        owned.write_path(self._path, summary.to_bytes(data))
        self._written_s = time.monotonic()

    @cached_property
    def _path(self) -> Path:
        """The file: no other process has this name, on whichever machine."""
        rank = os.environ.get("RANK", "")
        parts = [f"rank{rank}"] if rank.isdigit() else []
        parts += [socket.gethostname().replace("/", "_"), str(self._process)]
        return self._folder / f"{'-'.join(parts)}-{self._started:.0f}.json"

    def _device(self, number: int) -> summary.Device:
        seen = self._devices[number]
        free, total = torch.cuda.mem_get_info(number)
        seen.used_bytes = max(seen.used_bytes, seen.reserved_bytes, total - free)
        figures = self._peaks.figures(number)
        return summary.Device(
            index=number,
            name=torch.cuda.get_device_name(number)[: summary.MOST_TEXT],
            total_bytes=total,
            limit_bytes=_limit_bytes(number, total),
            used_bytes=seen.used_bytes,
            live_bytes=seen.live_bytes,
            reserved_bytes=seen.reserved_bytes,
            retries=int(figures.get("num_alloc_retries", 0)),
            refused=seen.refused,
            curve=seen.steps.curve(),
            lines_bytes=seen.held_bytes,
            lines=seen.lines,
        )


def _of_session() -> Settings | None:
    """Return how gmlake serves; None if it does not."""
    return session.settings() if gmlake.is_enabled() else None


def _limit_bytes(number: int, total_bytes: int) -> int:
    """Return the most that this process may hold of a device."""
    allowed = int(torch.cuda.get_per_process_memory_fraction(number) * total_bytes)
    settings = _of_session()
    return min(allowed, settings.capacity_bytes or allowed) if settings else allowed


def _job() -> str:
    """Return what all processes of this job have in common, and hopefully no other job."""
    found = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if found == "none":  # torchrun had no name for it
        found = os.environ.get("SLURM_JOB_ID", "")
    if not found and "MASTER_ADDR" in os.environ:
        found = f"{os.environ['MASTER_ADDR']}:{os.environ.get('MASTER_PORT', '')}"
    return (found or socket.gethostname())[: summary.MOST_TEXT]


def _policy() -> str:
    settings = _of_session()
    return f"gmlake ({settings.policy})" if settings else f"PyTorch ({device.backend()})"


def _settings() -> str:
    """Return the variables that set allocators so, whoever set them."""
    found = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    settings = _of_session()
    if settings is not None:
        told = replace(settings, on_oom="", on_oom_lines=False).to_environment()
        found |= {name: value for name, value in told.items() if name != POLICY}
    return " ".join(f"{name}={value}" for name, value in found.items())[: summary.MOST_TEXT]


def record_into(folder: str) -> None:
    """Record from the start of CUDA on, into a file of this process in the folder."""
    compat.when_cuda_starts(_Recorder(folder).start)


class Holders(NamedTuple):
    """The lines that hold most; frame: of the last refusal, "" if there is none."""

    live_bytes: int
    lines: tuple[Line, ...]
    frame: str


def holders_of(document: dict[str, Any], device: int, moment: str) -> Holders:
    """Return what a snapshot of PyTorch says of a device; moment: "peak" or "refusal".

    Raises TraceError for a snapshot that contradicts itself.
    """
    found = load(document)
    sites = found.sites
    seen = next((one for one in found if one.device == device), None)
    if seen is None:
        return Holders(0, (), "")
    is_refusal = moment == "refusal" and len(seen.refusals) > 0
    row = row_of(seen, "refusal" if is_refusal else "peak")
    ids = seen.lives.live_behind(row)
    frame = _frame(sites, _last_refused(seen)) if is_refusal else ""
    lives = seen.lives
    held: dict[str, list[int]] = {}
    for number, size in zip(lives.site[ids].tolist(), lives.size_bytes[ids].tolist(), strict=True):
        known = held.setdefault(_frame(sites, number), [0, 0])
        known[0] += size
        known[1] += 1
    ordered = sorted(held.items(), key=lambda item: -item[1][0])
    lines = [Line(name[:MOST_TEXT], size, count) for name, (size, count) in ordered]
    return Holders(int(lives.size_bytes[ids].sum()), tuple(lines[:MOST_LINES]), frame)


def _last_refused(seen: DeviceSnapshot) -> int:
    row = int(np.flatnonzero(seen.events["kind"] == Kind.OOM)[-1])
    return int(seen.event_sites[row])


def _frame(sites: dict[int, Site], number: int) -> str:
    return named_frame(sites.get(number, Site()).frames)
