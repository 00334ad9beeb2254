"""Reads the files of a folder and puts those of one job together.

A folder may hold several jobs, one after the other, and what torchrun began anew: a job has one
name, one number of ranks and one count of restarts, each rank once, and its processes ran at the
same time. Nothing in a file is trusted; one that cannot be read becomes a line, and one that
contradicts the rest of its job is a job of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from gmlake.errors import TraceError
from gmlake.file_bytes import UnreadableError, contents
from gmlake.jobs.summary import ENDED, MOST_BYTES, MOST_RANKS, RUNNING, Device, Summary, of_bytes
from gmlake.printable import printable

_CLOCKS_DIFFER_S: Final = 60.0


@dataclass(frozen=True)
class Member:
    """What one rank held of one device. name: "rank 3", or with its device if it has several."""

    name: str
    rank: Summary
    device: Device

    @property
    def share(self) -> float:
        """The part of the peak of reserved memory that the peak of live memory needs."""
        device = self.device
        return min(1.0, device.live_bytes / device.reserved_bytes) if device.reserved_bytes else 1.0


@dataclass(frozen=True)
class Job:
    """The ranks of one job that left a file, in their order. files: the names of theirs."""

    ranks: tuple[Summary, ...]
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What its processes have in common."""
        return self.ranks[0].job

    @property
    def world(self) -> int:
        """How many ranks it has, or processes that are known where it has none."""
        return max(*(rank.world for rank in self.ranks), len(self.ranks))

    @cached_property
    def started(self) -> float:
        """When the first of them began."""
        return min(rank.started for rank in self.ranks)

    @cached_property
    def seen(self) -> float:
        """When the last of them was there, even where a clock was set back."""
        return max(max(rank.started, rank.written) for rank in self.ranks)

    def is_beside(self, other: Job) -> bool:
        """Whether both say that they are the same job, at the same time."""
        alike = {(one.job, one.restart, one.rank >= 0) for one in (self.ranks[0], other.ranks[0])}
        is_same = alike == {(self.name, self.ranks[0].restart, True)}
        return is_same and self.started <= other.seen and other.started <= self.seen

    @property
    def missing(self) -> list[int]:
        """The ranks that left no file."""
        found = {rank.rank for rank in self.ranks}
        return [] if -1 in found else sorted(set(range(self.world)) - found)

    @property
    def cut_off(self) -> list[Summary]:
        """Those that had not ended when they wrote last."""
        return [rank for rank in self.ranks if rank.state == RUNNING]

    @property
    def raised(self) -> list[Summary]:
        """Those that an exception ended."""
        return [rank for rank in self.ranks if rank.state not in (RUNNING, ENDED)]

    @property
    def members(self) -> list[Member]:
        """The devices of all ranks."""
        return [
            Member(
                f"{rank.who}, device {one.index}" if len(rank.devices) > 1 else rank.who, rank, one
            )
            for rank in self.ranks
            for one in rank.devices
        ]


@dataclass(frozen=True)
class Folder:
    """What a folder holds. jobs: the oldest first. unreadable: a line for each other file."""

    path: str
    jobs: tuple[Job, ...]
    unreadable: tuple[str, ...]


def read_folder(folder: str | Path) -> Folder:
    """Read all files of a folder. Raises TraceError for one without a single rank."""
    path = Path(folder)
    try:
        if not path.is_dir():
            raise TraceError("no such folder", path=str(folder))
        names = sorted(each.name for each in path.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", path=str(folder)) from None
    found: dict[str, Summary] = {}
    unreadable = []
    for name in names[:MOST_RANKS]:
        try:
            found[name] = of_bytes(contents(path / name, MOST_BYTES))
        except (UnreadableError, ValueError) as error:
            unreadable.append(printable(f"{name}: {error}; copy it again, or remove it"))
    if len(names) > MOST_RANKS:
        unreadable.append(f"{len(names) - MOST_RANKS:,} more files: only {MOST_RANKS:,} are read")
    if not found:
        others = f"; {unreadable[0]}" if unreadable else ""
        raise TraceError(f"no rank of a job has left a file in it{others}", path=str(folder))
    return Folder(printable(str(folder)), tuple(_jobs(found)), tuple(unreadable))


class _Run:
    """Processes that say that they are one job, and ran at the same time: each rank once."""

    def __init__(self, world: int) -> None:
        self._world, self._ranks, self.seen = world, set[int](), 0.0
        self._files: list[tuple[str, Summary]] = []

    def takes(self, one: Summary) -> bool:
        is_then = one.started <= self.seen + _CLOCKS_DIFFER_S
        return is_then and one.world == self._world and one.rank not in self._ranks

    def add(self, name: str, one: Summary) -> None:
        self._files.append((printable(name), one))
        self._ranks |= {one.rank} - {-1}
        self.seen = max(self.seen, one.written, one.started)

    def job(self) -> Job:
        files = sorted(self._files, key=lambda each: (each[1].rank, each[1].pid))
        return Job(tuple(one for _, one in files), tuple(name for name, _ in files))


def _jobs(found: Mapping[str, Summary]) -> list[Job]:
    """Return the jobs, by their beginning; what is beside a larger one comes before that."""
    alike: defaultdict[tuple[str, int], list[_Run]] = defaultdict(list)
    for name, one in sorted(found.items(), key=lambda each: (each[1].started, each[1].rank)):
        runs = alike[one.job, one.restart]
        free = [run for run in runs if run.takes(one)]
        if not free:
            free = [_Run(one.world)]
            runs += free
        next((run for run in free if one.started <= run.seen), free[-1]).add(name, one)
    ordered = []
    for jobs in ([run.job() for run in runs] for runs in alike.values()):
        for job in jobs:
            larger = [one for one in jobs if 2 * len(job.ranks) <= len(one.ranks)]
            main = max(filter(job.is_beside, larger), key=lambda one: len(one.ranks), default=job)
            ordered.append(((main.started, main is job, job.started), job))
    return [job for _, job in sorted(ordered, key=lambda each: each[0])]
