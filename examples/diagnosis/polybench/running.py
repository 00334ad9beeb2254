"""Runs a program of this folder in its block of gmlake.diagnose(), and says what was found."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

try:
    import torch
except ImportError as problem:
    sys.exit(f"polybench: {problem}; install it with: pip install torch")

from gmlake.diagnosis.operators import diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gmlake.diagnosis import Diagnosis

SEED = 5


@dataclass(frozen=True)
class Program:
    """A program and its twin, in which what a diagnosis names is mended.

    wasteful and fixed take a size and a device and return a number that both must agree in.
    """

    name: str
    wasteful: Callable[[int, torch.device], float]
    fixed: Callable[[int, torch.device], float]
    size: int = 64


@dataclass(frozen=True)
class Run:
    """What one run gave. allocated_bytes: the peak that CUDA's allocator saw, 0 on a CPU."""

    result: float
    diagnosis: Diagnosis
    allocated_bytes: int

    @property
    def patterns(self) -> set[str]:
        """The names of the patterns that were found."""
        return {found.pattern for found in self.diagnosis.findings}


def run(program: Program, size: int, device: str, *, is_fixed: bool = False) -> Run:
    """Run a program, or its twin, and diagnose it."""
    place = torch.device(device)
    function = program.fixed if is_fixed else program.wasteful
    before = 0
    if place.type == "cuda":
        function(8, place)  # libraries take their own memory once
        before = torch.cuda.memory_allocated(place)
        torch.cuda.reset_peak_memory_stats(place)
    torch.manual_seed(SEED)
    with diagnose(whole_program=True, devices=place.type) as report:
        result = function(size, place)
    allocated = torch.cuda.max_memory_allocated(place) - before if place.type == "cuda" else 0
    (diagnosis,) = report.devices.values()
    return Run(result, diagnosis, allocated)


def main(program: Program, arguments: Sequence[str] | None = None) -> int:
    """Run the command line of a program; return the exit status."""
    parser = argparse.ArgumentParser(
        description=f"Run {program.name} of PolyBench and diagnose its memory.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", type=int, default=program.size, help="of the matrices")
    parser.add_argument("--fixed", action="store_true", help="run the twin that is mended")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to run"
    )
    options = parser.parse_args(arguments)
    done = run(program, options.size, options.device, is_fixed=options.fixed)
    print(done.diagnosis)
    print(f"result {done.result:.6g}, peak {done.diagnosis.peak_bytes} bytes", end="")
    print(f", {done.allocated_bytes} by the allocator" if done.allocated_bytes else "")
    return 0
