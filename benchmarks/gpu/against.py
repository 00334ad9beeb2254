"""Programs whose steps never repeat under several allocators: speed and memory.

    PYTHONPATH=benchmarks python -m gpu.against --programs llama-1b --output table.json

Each run is gpu.varying in a process of its own; every other round goes in the opposite order, since
a GPU that gets warm gets slower.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
from gpu.processes import run_ranks
from gpu.settings import ALLOCATORS, PROGRAMS, STEPS, STEPS_OF, environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GIB = 1 << 30
_LONGEST_RUN_SECONDS = 300.0
_DROPPED = ("losses", "program", "allocator", "knobs", "rank", "versions", "device")
_SPREAD = (
    *("late_step_seconds", "late_seconds", "peak_allocated_bytes", "peak_reserved_bytes"),
    *("utilization", "retries", "late_driver_calls_per_step", "late_driver_seconds_per_step"),
    "late_driver_share",
)


@dataclass(frozen=True)
class Run:
    """A program under an allocator, for the `round`th time; the first is 0.

    allocator: NAME[:SETTING=VALUE]..., of ALLOCATORS, with settings of gmlake.
    """

    program: str
    allocator: str
    round: int

    def words(self) -> list[str]:
        """Return what gpu.varying is told."""
        name, *settings = self.allocator.split(":")
        told = [self.program, "--allocator", name]
        for setting in settings:
            told += ["--set", setting]
        return told

    def take(self, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
        """Return what its processes told, of several the worst."""
        count = options.processes if self.program == "fsdp2" else 1
        words = [*self.words(), "--size", options.size, "--backend", options.backend]
        words += ["--steps", str(options.steps)] if options.steps else []
        began = time.monotonic()
        told = run_ranks(
            ["gpu.varying", *words],
            count,
            seconds=seconds,
            variables=environment(self.allocator.partition(":")[0]),
        )
        return {**worst(told), "wall_seconds": round(time.monotonic() - began, 3)}


def worst(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the processes of a run told as one: the first's, the largest sizes, a failure."""
    refused = next((one for one in told if one.get("has_finished") is False), None)
    failed = refused or next((one for one in told if "failed" in one), None)
    if failed or len(told) == 1:
        return dict(failed or told[0])
    largest = {
        name: max(one[name] for one in told)
        for name in told[0]
        if name.endswith("_bytes") and isinstance(told[0][name], int)
    }
    by_reserved = max(told, key=lambda one: int(one["peak_reserved_bytes"]))
    names = ("peak_allocated_bytes", "peak_reserved_bytes")
    return {
        **told[0],
        **largest,
        "utilization": by_reserved["utilization"],
        "rank_peaks": [{name: one[name] for name in names} for one in told],
    }


def late(told: dict[str, Any]) -> dict[str, Any]:
    """Return what the last two thirds of the steps took, and the driver calls among it."""
    seconds = told.get("seconds", [])
    third = len(seconds) // 3
    steps = len(seconds) - third
    if not told.get("has_finished") or not third:
        return {}
    figures: dict[str, Any] = {"late_seconds": round(sum(seconds[third:]), 6)}
    if "gmlake" in told:
        calls, ns = (
            told["gmlake"][name][-1] - told["gmlake"][name][third - 1]
            for name in ("driver_calls_by_step", "driver_ns_by_step")
        )
        figures["late_driver_calls_per_step"] = round(calls / steps, 2)
        figures["late_driver_seconds_per_step"] = round(ns / 1e9 / steps, 6)
        figures["late_driver_share"] = round(ns / 1e9 / figures["late_seconds"], 5)
    return figures


class Results:
    """What came out so far, and the file that has it."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Begin with nothing."""
        self.options = options
        self.began = time.monotonic()
        self.runs: list[dict[str, Any]] = []
        self.losses: dict[str, list[str]] = {}
        self.versions: dict[str, str] = {}
        self.gpu = "none"
        self.is_complete = False

    def left_seconds(self) -> float:
        """Return how much of the budget is left."""
        return float(self.options.budget_seconds - (time.monotonic() - self.began))

    def add(self, run: Run, told: dict[str, Any]) -> None:
        """Keep what a run told, in the file, too."""
        losses = told.get("losses", [])
        expected = self.losses.setdefault(run.program, losses)
        if len(losses) > len(expected):
            expected, self.losses[run.program] = losses, losses
        self.versions = told.get("versions", self.versions)
        self.gpu = told.get("device", self.gpu)
        kept = {name: value for name, value in told.items() if name not in _DROPPED}
        is_same = losses == self.losses[run.program][: len(losses)]
        self.runs.append({**vars(run), **kept, **late(told), "has_same_losses": is_same})
        if self.options.output:
            self.write(self.options.output)

    def write(self, path: Path | None = None) -> Path:
        """Write the file, or the result."""
        return machine.write("gpu_varying", self.figures(), path=path, gpu=self.gpu)

    def figures(self) -> dict[str, Any]:
        """Return everything, sizes in bytes."""
        programs = self.options.programs
        return {
            "versions": self.versions,
            "size": self.options.size,
            "steps": {name: self.options.steps or STEPS_OF.get(name, STEPS) for name in programs},
            "rounds": self.options.rounds,
            "seconds": round(time.monotonic() - self.began, 1),
            "is_complete": self.is_complete,
            "summary": summary(self.runs),
            "losses": self.losses,
            "runs": self.runs,
        }


def _spread(runs: Iterable[dict[str, Any]], name: str) -> dict[str, float] | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rounds of each program and allocator as one; in the order they ran."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["program"], run["allocator"]].append(run)
    rows = []
    for (program, allocator), rounds in groups.items():
        done = [run for run in rounds if run.get("has_finished")]
        rows.append(
            {
                "program": program,
                "allocator": allocator,
                "rounds": len(rounds),
                "finished": len(done),
                "failed_steps": [run["failed_step"] for run in rounds if "failed_step" in run],
                "failed": sorted({run["failed"] for run in rounds if "failed" in run}),
                "has_same_losses": all(run["has_same_losses"] for run in rounds),
                **{name: _spread(done, name) for name in _SPREAD},
            }
        )
    return rows


def measure(results: Results) -> None:
    """Run everything, one after the other, until all is done or the budget is spent."""
    options = results.options
    for number in range(options.rounds):
        for program in options.programs:
            for allocator in options.allocators[:: -1 if number % 2 else 1]:
                left = results.left_seconds()
                if left <= 0:
                    print("the budget is spent", flush=True)
                    return
                run = Run(program, allocator, number)
                results.add(run, run.take(options, min(left, _LONGEST_RUN_SECONDS)))
                took = results.runs[-1]["wall_seconds"]
                print(f"{program}, {allocator}, round {number}: {took:.1f} s", flush=True)
    results.is_complete = True


def show(rows: Sequence[dict[str, Any]], title: str) -> None:
    """Print one row for each allocator and program, with medians."""
    names = ("program", "allocator", "finished", "failed_steps", "failed", "has_same_losses")
    shown = [
        {name: row[name] for name in names}
        | {name: row[name]["median"] for name in _SPREAD[:5] if row[name]}
        for row in rows
    ]
    machine.show(title, shown)


def _programs(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PROGRAMS:
            reason = f"no program is called {name!r}; there are {', '.join(PROGRAMS)}"
            raise argparse.ArgumentTypeError(reason)
    return names


def _allocators(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for text_ in names:
        name, *settings = text_.split(":")
        if name not in ALLOCATORS or (settings and name != "gmlake"):
            raise argparse.ArgumentTypeError(f"{text_!r} is no allocator, nor gmlake:SETTING=VALUE")
    return names


def main() -> int:
    """Measure, print, and keep it; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--programs", type=_programs, default=["llama-1b"], help=f"a,b: of {', '.join(PROGRAMS)}")
    add(
        "--allocators",
        type=_allocators,
        default=["default", "expandable", "gmlake"],
        help="a,b: of default, expandable, async, gmlake; gmlake:chunk_size=16MiB has settings, "
        "gmlake:region=NAME runs in a region that can sleep",
    )
    add("--rounds", type=int, default=3)
    add("--steps", type=int, help=f"{STEPS}, of generate {STEPS_OF['generate']}, unless said")
    add("--size", choices=("full", "tiny"), default="full")
    add("--budget-seconds", type=float, default=540, help="no run begins later")
    add("--processes", type=int, default=2, help="and devices, of fsdp2")
    add("--backend", default="nccl", help="of fsdp2: nccl, gloo")
    add("--output", type=Path, help="file for the figures, as JSON; written after each run")
    add("--write", action="store_true", help="keep it as results/gpu_varying.json")
    options = parser.parse_args()
    results = Results(options)
    measure(results)
    rows = summary(results.runs)
    show(rows, f"{options.size}, {results.gpu}")
    for path in [options.output] * bool(options.output) + [None] * options.write:
        print(results.write(path))
    return int(any(row["finished"] < row["rounds"] or not row["has_same_losses"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
