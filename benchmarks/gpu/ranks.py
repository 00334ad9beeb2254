"""A program in several processes of torch.distributed, each of which prints one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from gpu.workers import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_ranks(words: Sequence[str], count: int, **variables: str) -> list[dict[str, Any]]:
    """Run `python -m WORDS` so many times at once; return what each told, or `failed`."""
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    started = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **group, **variables, "RANK": str(rank)},
        )
        for rank in range(count)
    ]
    found: list[dict[str, Any]] = []
    for process in started:
        output, errors = process.communicate()
        if process.returncode:
            print(errors, file=sys.stderr)
            found.append({"failed": (errors.strip() or "no message").splitlines()[-1]})
        else:
            found.append(json.loads(output.splitlines()[-1]))
    return found
