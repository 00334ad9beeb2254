"""The largest batch that `gmlake fit` foretells from two recordings, and the largest that runs.

python benchmarks/fits.py [--write] [PROGRAM ...]

Runs on the stand-in GPU. Each program is recorded with two small batches under PyTorch's allocator.
What fit() says of a device of MEMORY is then tried: the largest batch that runs to its end there,
under PyTorch's allocator, with expandable segments, and under gmlake, each run a process.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gmlake.units import format_size
from workloads.record import environment

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30
MEMORY = 16 * GIB
SMALL_MEMORY = 4 * GIB  # of programs whose tensors are small
BATCHES = (2, 4)
STEPS = 4
WAYS = {"caching": "default", "expandable": "expandable", "stitch": "default"}
PROGRAMS = {
    "gpt2-small": MEMORY,
    "gpt2-medium": MEMORY,
    "gpt2-medium-checkpoint": MEMORY,
    "accumulation": MEMORY,
    "varying": MEMORY,
    "varying-checkpoint": MEMORY,
    "decode": SMALL_MEMORY,
    "convolutions": SMALL_MEMORY,
    "lora": 24 * GIB,
}


# ---- in the process of one run


def run(name: str, batch: int, memory_bytes: int | None, way: str, output: Path | None) -> bool:
    """Run a program with a batch; return whether memory was enough. Recorded without a limit."""
    import torch

    from workloads.catalog import WORKLOADS
    from workloads.session import SCALES, Session

    class Quiet(Session):
        """A session that notes nothing."""

        def __post_init__(self) -> None:
            torch.manual_seed(0)
            self._limit_memory()

        def mark(self, label: str, *, is_trim: bool = False) -> None:
            pass

    if way == "stitch":
        gmlake.enable()
    made = Session if output else Quiet
    session = made(torch.device("cuda", 0), SCALES["full"], STEPS, memory_bytes)
    program: Any = WORKLOADS[name].run
    try:
        program.func(session, **program.keywords | {"batch": batch})
    except torch.OutOfMemoryError:
        return False
    except RuntimeError as error:
        # What PyTorch says where no algorithm of a convolution gets its workspace.
        if "FIND was unable to find an engine" not in str(error):
            raise
        return False
    if output:
        with output.open("wb") as file:
            pickle.dump(session.finish()[0], file, protocol=4)
    return True


# ---- all of them


def ask(name: str, batch: int, memory_bytes: int = 0, way: str = "", output: str = "") -> bool:
    """Run one batch in a process of its own; return whether memory was enough."""
    command = [sys.executable, "-m", "tests.standin", "--capacity", "400GiB", __file__, name]
    command += ["--batch", str(batch), "--memory", str(memory_bytes), "--way", way]
    done = subprocess.run(  # noqa: S603
        [*command, "--output", output],
        env=environment(WAYS.get(way, "default")),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name}, batch {batch}: {done.stderr[-600:]}")
    return bool(json.loads(done.stdout.splitlines()[-1]))


def largest(fits: Callable[[int], bool], guess: int) -> int:
    """Return the largest number that fits, 0 if 1 does not; `guess` only saves questions."""
    low, high, step = 0, 0, 1  # low fits, high does not; 0: not known
    at = max(1, guess)
    while high == 0 or high - low > 1:
        if fits(at):
            low = at
            at = at + step if high == 0 else (low + high) // 2
        else:
            high = at
            at = max(at - step, 1) if low == 0 else (low + high) // 2
        step *= 2
    return low


def measure(name: str) -> dict[str, Any]:
    """Return what was foretold of a program and what ran, by way."""
    memory_bytes = PROGRAMS[name]
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for batch in BATCHES:
            path = f"{folder}/{batch}.pickle"
            ask(name, batch, output=path)
            traces.append(gmlake.load(path).devices[0].trace)
        report = gmlake.fit(traces, memory_bytes, BATCHES, tuple(WAYS))
    told: dict[str, Any] = {"memory_bytes": memory_bytes, "ways": {}}
    for one in report.largest:
        ran = largest(partial(ask, name, memory_bytes=memory_bytes, way=one.policy), one.batch)
        told["ways"][one.policy] = {"foretold": one.batch, "ran": ran, "is_line": one.is_line}
    print(name, told["ways"], flush=True)
    return told


def main() -> None:
    """Measure each program, print the table, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", default=[*PROGRAMS])
    parser.add_argument("--write", action="store_true", help="keep it as results/fits.json")
    parser.add_argument("--batch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        output = Path(options.output) if options.output else None
        name, memory = options.programs[0], options.memory or None
        print(json.dumps(run(name, options.batch, memory, options.way, output)), flush=True)
        os._exit(0)  # what a program that ran out of memory leaves behind need not be cleared up
    programs = {name: measure(name) for name in options.programs}
    table = Table("program", "memory", *(f"{way}: foretold, ran" for way in WAYS))
    for name, told in programs.items():
        cells = (f"{one['foretold']}, {one['ran']}" for one in told["ways"].values())
        table.add_row(name, format_size(told["memory_bytes"]), *cells)
    Console(width=120).print(table)
    if options.write:
        figures = {"batches": BATCHES, "steps": STEPS, "programs": programs}
        print(machine.write("fits", figures, gpu="none: the stand-in GPU"))


if __name__ == "__main__":
    main()
