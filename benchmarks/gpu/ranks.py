"""A program in several processes of torch.distributed, each of which prints one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any

from gpu.workers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LOOK_SECONDS = 0.1


def run_ranks(
    words: Sequence[str], count: int, *, cores: Iterable[int] = (), **variables: str
) -> list[dict[str, Any]]:
    """Run `python -m WORDS` so many times at once; return what each told, or `failed`.

    cores: those that the processes may use; all if there are none.

    What they say goes to this process's stderr. Where one fails, the others end, too: they would
    wait for it.
    """
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    with contextlib.ExitStack() as files:
        outputs = [
            files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            for _ in range(count)
        ]
        started = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *words],
                stdout=output,
                env={**os.environ, **group, **variables, "RANK": str(rank)},
            )
            for rank, output in enumerate(outputs)
        ]
        for process in started if cores else ():
            os.sched_setaffinity(process.pid, cores)
        try:
            while any(process.poll() is None for process in started):
                if any(process.returncode for process in started):
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
    output.seek(0)
    lines = output.read().splitlines()
    told: dict[str, Any] = {"failed": f"exit status {status}"} if status else json.loads(lines[-1])
    return told
