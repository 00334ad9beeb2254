"""The GPUs of a host with shares of its cores, and what is dealt to them; needs no PyTorch."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
J = TypeVar("J")


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
