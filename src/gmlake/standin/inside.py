"""What watches a program that is forecast: it records every request, and ends it once it repeats.

Runs in each process of the program, from the moment that PyTorch is imported. The variables
GMLAKE_FORECAST, a folder for recordings, GMLAKE_FORECAST_STEPS, 0 to run to the end, and
GMLAKE_FORECAST_SECONDS say what is wanted.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gmlake.pytorch import compat
from gmlake.pytorch.locking import process_lock
from gmlake.standin import answers, asked, control, ranks

LONGEST_PERIOD: Final = 16
"""Calls of optimizers in one step of a program, at most: several optimizers take turns."""

FIRST_STEPS: Final = 2
"""Steps that count for nothing: optimizers make their state in the first, caches fill."""

BACKWARD_PASSES: Final = 64  # of a program without an optimizer: then each is taken as a step


class _Watch:
    """The requests and steps of this process; in a fork whose parent used CUDA there are none."""

    def __init__(self, folder: Path, most_steps: int) -> None:
        self._folder = folder
        self._most_steps = most_steps
        self._steps: list[tuple[int, int]] = []  # requests and bytes of each, all devices together
        self._live: list[int] = []  # bytes after each step
        self._total = (0, 0)
        self._passes = 0
        self._has_optimizer = False
        self._error: list[str] = []
        self._thread_errors: list[list[str]] = []
        self._is_written = False
        self._lock = process_lock()

    def start(self) -> None:
        """Watch from now on; nothing is done in a process that never starts CUDA."""
        compat.when_cuda_starts(self._record)
        register_optimizer_step_post_hook(self._optimized)
        backward: Any = torch.autograd.backward
        torch.autograd.backward = functools.wraps(backward)(functools.partial(self._back, backward))
        if seconds := float(os.environ.get("GMLAKE_FORECAST_SECONDS", "0")):
            timer = threading.Timer(seconds, self._end, ("time was up",))
            timer.daemon = True
            timer.start()
        atexit.register(self.write, "the program ended")
        self._previous = sys.excepthook
        sys.excepthook = self._failed
        self._previous_of_threads = threading.excepthook
        threading.excepthook = self._thread_failed
        answers.install()
        ranks.install()

    def _record(self) -> None:
        """Record every request, and write where a process of multiprocessing ends, too."""
        compat.record_history()
        Finalize(None, self.write, args=("the program ended",), exitpriority=0)

    def _failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._error = traceback.format_exception(kind, error, trace)
        self._previous(kind, error, trace)

    def _thread_failed(self, arguments: threading.ExceptHookArgs) -> None:
        self._thread_errors.append(traceback.format_exception(*arguments[:3]))
        self._previous_of_threads(arguments)

    def _back(self, backward: Callable[..., None], *given: object, **named: object) -> None:
        """Differentiate; where no optimizer is, take that as a step."""
        backward(*given, **named)
        self._passes += 1
        if self._passes == BACKWARD_PASSES and not self._has_optimizer:
            of = torch.optim.Optimizer
            self._has_optimizer = any(isinstance(each, of) for each in gc.get_objects())
        if self._passes > BACKWARD_PASSES and not self._has_optimizer:
            self._stepped()

    def _optimized(self, *_: object) -> None:
        """An optimizer made a step."""
        self._has_optimizer = True
        self._stepped()

    def _stepped(self) -> None:
        """Note what a step asked for, and end the program once the last steps are alike."""
        if not torch.cuda.is_initialized():
            return
        count, size_bytes, live = _asked()
        self._steps.append((count - self._total[0], size_bytes - self._total[1]))
        self._live.append(live)
        self._total = count, size_bytes
        if not self._most_steps:
            return
        if period := _period(self._steps[FIRST_STEPS:]):
            self._end(f"steps repeat (every {period})" if period > 1 else "steps repeat")
        elif len(self._steps) >= self._most_steps:
            self._end("steps differ")

    def _end(self, why: str) -> None:
        """End the process here: what a program does at its end, such as saving, is left out."""
        self.write(why)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if self._is_written else 124)

    def write(self, why: str) -> None:
        """Write the recording and what is known beside it; once."""
        with self._lock:
            if self._is_written or not torch.cuda.is_initialized():
                return
            self._is_written = True
            name = f"{os.environ.get('RANK', '0')}-{os.getpid()}"
            known = {
                "why": why,
                "steps": len(self._steps),
                "asked_bytes": [size_bytes for _, size_bytes in self._steps[FIRST_STEPS:]],
                "live_bytes": self._live[FIRST_STEPS:],
                "error": self._error,
                "threads": self._thread_errors,
                "rank": int(os.environ.get("RANK", "0")),
                "world": int(os.environ.get("WORLD_SIZE", "1")),
                "devices": [_peaks(device) for device in range(torch.cuda.device_count())],
                "calls": dict(control.calls()),
                "answers": asked.given(),
            }
            with (self._folder / f"{name}.pickle").open("wb") as file:
                pickle.dump(compat.memory_snapshot(), file)
            # Written last: a reader looks for it first.
            (self._folder / f"{name}.json").write_text(json.dumps(known), encoding="utf-8")


def _asked() -> list[int]:
    """Return how many requests all devices have had, of how many bytes, and what is live.

    What is asked for counts, not what the allocator makes of it, which depends on what is free.
    """
    known = [torch.cuda.memory_stats(device) for device in range(torch.cuda.device_count())]
    figures = (
        "allocation.all.allocated",
        "requested_bytes.all.allocated",
        "requested_bytes.all.current",
    )
    return [sum(one[each] for one in known) for each in figures]


def _peaks(device: int) -> dict[str, int]:
    known = torch.cuda.memory_stats(device)
    return {
        "allocated_bytes": int(known.get("allocated_bytes.all.peak", 0)),
        "reserved_bytes": int(known.get("reserved_bytes.all.peak", 0)),
        "refused": int(known.get("num_ooms", 0)),
    }


def _period(steps: list[tuple[int, int]]) -> int:
    """Return the number of calls after which all is asked for again, 0 if it has not been yet.

    One call is seen three times to be sure, and more of them twice.
    """
    if len(steps) >= 3 and steps[-1] == steps[-2] == steps[-3]:  # noqa: PLR2004
        return 1
    for period in range(2, LONGEST_PERIOD + 1):
        if len(steps) >= 2 * period and steps[-period:] == steps[-2 * period : -period]:
            return period
    return 0


def activate() -> bool:
    """Watch this process if it is of a program that is forecast; return whether it is.

    One that `gmlake run --without-gpu` runs is answered as such a program.
    """
    if not control.is_active():
        return False
    if folder := os.environ.get("GMLAKE_FORECAST"):
        _Watch(Path(folder), int(os.environ.get("GMLAKE_FORECAST_STEPS", "8"))).start()
        return True
    if os.environ.get("GMLAKE_STANDIN_ANSWERS"):
        answers.install()
    return False
