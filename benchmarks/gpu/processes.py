"""A program in processes of its own, each of which prints a line of JSON; needs no PyTorch.

Where a host has several GPUs, programs are dealt to them, each with a share of the cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")
J = TypeVar("J")

_LOOK_SECONDS = 0.1


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


def run_ranks(
    words: Sequence[str],
    count: int,
    *,
    cores: Iterable[int] = (),
    seconds: float = float("inf"),
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Run `python -m WORDS` so many times at once; return what each told, or `failed`.

    cores: those that the processes may use; all if there are none. seconds: how long they may take.
    variables: what they see beside what torch.distributed wants.

    What they say goes to this process's stderr. Where one fails, the others end, too: they would
    wait for it.
    """
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as files:
        outputs = [
            files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            for _ in range(count)
        ]
        started = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *words],
                stdout=output,
                env={**(variables or os.environ), **group, "RANK": str(rank)}
                | {"LOCAL_RANK": str(rank)},
            )
            for rank, output in enumerate(outputs)
        ]
        for process in started if cores else ():
            os.sched_setaffinity(process.pid, cores)
        try:
            while any(process.poll() is None for process in started):
                if any(process.returncode for process in started) or time.monotonic() > end:
                    break
                time.sleep(_LOOK_SECONDS)
        finally:
            for process in started:
                process.kill()  # does nothing to one that has ended
                process.wait()
        return [
            _told(process.returncode, output)
            for process, output in zip(started, outputs, strict=True)
        ]


def _told(status: int, output: IO[str]) -> dict[str, Any]:
    """Return what a process told; one that was refused memory tells it with a status of its own."""
    output.seek(0)
    lines = output.read().splitlines()
    if status and not (lines and lines[-1].startswith("{")):
        return {"failed": f"exit status {status}"}
    told: dict[str, Any] = json.loads(lines[-1])
    return told


# ---- several GPUs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """GPUs for one job, by number, and the cores that only this job uses."""

    gpus: tuple[int, ...]
    cores: tuple[int, ...]

    def environment(self) -> dict[str, str]:
        """Return what shows a process these GPUs and no others."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))}


def slots(gpus: int, per_job: int = 1) -> list[Slot]:
    """Divide so many GPUs, and all cores, among jobs of `per_job` GPUs each."""
    count = max(1, gpus // per_job)
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // count)
    return [
        Slot(
            tuple(range(number * per_job, (number + 1) * per_job)),
            tuple(cores[(number * share) % len(cores) :][:share]),
        )
        for number in range(count)
    ]


def deal(jobs: Sequence[J], places: Sequence[Slot], work: Callable[[J, Slot], T]) -> list[T]:
    """Do each job in the next slot that is free; return what came out, in the order of the jobs."""
    free: SimpleQueue[Slot] = SimpleQueue()
    for place in places:
        free.put(place)

    def do(job: J) -> T:
        place = free.get()
        try:
            return work(job, place)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(do, jobs))
