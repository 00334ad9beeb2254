"""Runs of gpu.varying in processes of their own, started ahead of their turn; needs no PyTorch.

A process that waits has imported everything and not touched the device.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu.settings import ALLOCATORS, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

_AHEAD = 2
_ENDED = {"failed": "another process of the run ended"}


@dataclass(frozen=True)
class Allocator:
    """What serves a run: one of ALLOCATORS, and settings of gmlake.

    text: as it was given, NAME[:SETTING=VALUE]... The settings `policy` and `path` are not passed
    on: the first names the policy, the second a folder to import gmlake from.
    """

    text: str
    name: str
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> Allocator:
        """Read one; ValueError where there is no such allocator."""
        name, *parts = text.split(":")
        pairs = [part.partition("=") for part in parts]
        if name not in ALLOCATORS:
            message = f"no allocator is called {name!r}"
            raise ValueError(message)
        if any(not value for _, _, value in pairs) or (pairs and name != "gmlake"):
            message = f"{text!r} is not gmlake:SETTING=VALUE"
            raise ValueError(message)
        return cls(text, name, tuple((setting, value) for setting, _, value in pairs))

    def options(self) -> list[str]:
        """Return what gpu.varying is told."""
        told = ["--allocator", self.name]
        for setting, value in self.settings:
            if setting == "policy":
                told += ["--policy", value]
            elif setting != "path":
                told += ["--set", f"{setting}={value}"]
        return told

    def environment(self) -> dict[str, str]:
        """Return what the process sees."""
        variables = environment(self.name)
        paths = [value for setting, value in self.settings if setting == "path"]
        variables["PYTHONPATH"] = os.pathsep.join([*paths, variables["PYTHONPATH"]])
        return variables


@dataclass(frozen=True)
class Job:
    """One run."""

    program: str
    allocator: Allocator
    round: int = 0


class Run:
    """The process of a job, or its processes where it takes several; they wait from the start."""

    def __init__(self, job: Job, options: Sequence[str], processes: int) -> None:
        """Start them. options: of gpu.varying."""
        command = [sys.executable, "-m", "gpu.varying", job.program, "--wait"]
        command += [*job.allocator.options(), *options]
        variables = job.allocator.environment()
        if processes > 1:
            variables["MASTER_ADDR"], variables["MASTER_PORT"] = "127.0.0.1", str(free_port())
            variables["WORLD_SIZE"] = str(processes)
        self.job = job
        self.errors = [tempfile.TemporaryFile() for _ in range(processes)]  # noqa: SIM115 (while they run)
        self.processes = [
            subprocess.Popen(  # noqa: S603
                command,
                bufsize=0,
                env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
            for rank, errors in enumerate(self.errors)
        ]

    def _finish(self, rank: int, timeout: float) -> dict[str, Any]:
        """Let one process run to its end; return what it told, or `failed`."""
        process = self.processes[rank]
        try:
            output, _ = process.communicate(b"\n", timeout)
        except subprocess.TimeoutExpired:
            return {"failed": f"took longer than {timeout:.0f} s", "is_late": True}
        if process.returncode:
            self.errors[rank].seek(0)
            lines = self.errors[rank].read().decode("utf-8", "replace").strip().splitlines()
            last = (lines or ["no message"])[-1]
            return {"failed": f"exit code {process.returncode}: {last}"}
        told: dict[str, Any] = json.loads(output)
        return told

    def finish(self, timeout: float) -> dict[str, Any]:
        """Tell them to begin; return what they told, of several processes the worst."""
        for process in self.processes:
            assert process.stdout is not None  # noqa: S101 (for the type checker)
            process.stdout.readline()  # they are ready, or have ended
        began = time.monotonic()
        told: list[dict[str, Any]] = [_ENDED] * len(self.processes)
        with ThreadPoolExecutor(len(self.processes)) as pool:
            ranks = {
                pool.submit(self._finish, rank, timeout): rank
                for rank in range(len(self.processes))
            }
            waiting = set(ranks)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    told[ranks[future]] = future.result()
                if any(not told[ranks[future]].get("has_finished") for future in done):
                    self.end()
                    break
        self.end()
        return {**worst(told), "wall_seconds": round(time.monotonic() - began, 3)}

    def end(self) -> None:
        """End what still runs."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def worst(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the processes of a run told as one: the first's, the largest sizes, a failure."""
    failed = next((one for one in told if one.get("has_finished") is False), None)
    failed = failed or next((one for one in told if "failed" in one and one is not _ENDED), None)
    if failed or len(told) == 1:
        return dict(failed or told[0])
    largest = {
        name: max(one[name] for one in told)
        for name in told[0]
        if name.endswith("_bytes") and isinstance(told[0][name], int)
    }
    by_reserved = max(told, key=lambda one: int(one["peak_reserved_bytes"]))
    return {
        **told[0],
        **largest,
        "utilization": by_reserved["utilization"],
        "rank_peaks": [
            {name: one[name] for name in ("peak_allocated_bytes", "peak_reserved_bytes")}
            for one in told
        ],
    }


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


def started_ahead(jobs: Iterable[Job], start: Callable[[Job], Run]) -> Generator[Run, None, None]:
    """Yield the run of each job in turn, while those of the next ones wait already.

    What was started and not used is ended with the generator.
    """
    left, waiting = iter(jobs), deque[Run]()
    try:
        while True:
            while len(waiting) <= _AHEAD and (job := next(left, None)):
                waiting.append(start(job))
            if not waiting:
                return
            yield waiting.popleft()
    finally:
        for run in waiting:
            run.end()
