"""Reads the files of a folder and puts those of one job together.

A folder may hold several jobs, one after the other, and what torchrun began anew: a job has one
name, one number of ranks and one count of restarts, each rank once, and its processes ran at the
same time. Nothing in a file is trusted; one that cannot be read becomes a line.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gmlake.errors import TraceError
from gmlake.file_bytes import UnreadableError, contents
from gmlake.jobs.summary import ENDED, MOST_BYTES, RUNNING, Device, Summary, of_bytes
from gmlake.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_FILES: Final = 1 << 16
"""Files of a folder that are looked at."""

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
    """The ranks of one job that left a file, in their order."""

    ranks: tuple[Summary, ...]

    @property
    def name(self) -> str:
        """What its processes have in common."""
        return self.ranks[0].job

    @property
    def world(self) -> int:
        """How many ranks it has, or processes that are known where it has none."""
        return max(*(rank.world for rank in self.ranks), len(self.ranks))

    @property
    def started(self) -> float:
        """When the first of them began."""
        return min(rank.started for rank in self.ranks)

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
    summaries, unreadable = [], []
    for name in names[:MOST_FILES]:
        try:
            summaries.append(of_bytes(contents(path / name, MOST_BYTES)))
        except (UnreadableError, ValueError) as error:
            unreadable.append(printable(f"{name}: {error}"))
    if not summaries:
        others = f"; {unreadable[0]}" if unreadable else ""
        raise TraceError(f"no rank of a job has left a file in it{others}", path=str(folder))
    return Folder(printable(str(folder)), tuple(_jobs(summaries)), tuple(unreadable))


def _jobs(summaries: Iterable[Summary]) -> list[Job]:
    """Return the jobs, by their beginning."""
    alike: defaultdict[tuple[str, int, int], list[list[Summary]]] = defaultdict(list)
    for one in sorted(summaries, key=lambda each: (each.started, each.rank)):
        runs = alike[one.job, one.world, one.restart]
        if not runs or not _belongs(one, runs[-1]):
            runs.append([])
        runs[-1].append(one)
    jobs = [
        Job(tuple(sorted(run, key=lambda each: (each.rank, each.pid))))
        for runs in alike.values()
        for run in runs
    ]
    return sorted(jobs, key=lambda job: job.started)


def _belongs(one: Summary, run: list[Summary]) -> bool:
    """Whether a rank ran with others: they were not over, and none of them has its number."""
    is_new = one.rank == -1 or all(each.rank != one.rank for each in run)
    return is_new and one.started <= max(each.written for each in run) + _CLOCKS_DIFFER_S
