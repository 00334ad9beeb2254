"""Programs whose steps never repeat under several allocators: speed and memory.

    PYTHONPATH=benchmarks python -m gpu.against --programs llama-1b --output table.json

Each run is gpu.varying in a process of its own; every other round goes in the opposite order, since
a GPU that gets warm gets slower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

import machine
from gpu.settings import PROGRAMS, STEPS, STEPS_OF
from gpu.workers import Allocator, Job, Run, started_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

GIB = 1 << 30
_LONGEST_RUN_SECONDS = 300
_DROPPED = ("losses", "program", "allocator", "knobs", "rank", "versions", "device")


class Results:
    """What came out so far, and the file that has it."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Begin with nothing."""
        self.options = options
        self.began = time.monotonic()
        self.circumstances = machine.describe()
        self.runs: list[dict[str, Any]] = []
        self.losses: dict[str, list[str]] = {}
        self.versions: dict[str, str] = {}
        self.is_complete = False

    def left_seconds(self) -> float:
        """Return how much of the budget is left."""
        return float(self.options.budget_seconds - (time.monotonic() - self.began))

    def expected_seconds(self, job: Job) -> float:
        """Return how long a run of that program took at most so far."""
        took = [run["wall_seconds"] for run in self.runs if run["program"] == job.program]
        return max(took, default=0.0)

    def add(self, job: Job, told: dict[str, Any]) -> None:
        """Keep what a run told."""
        losses = told.get("losses", [])
        expected = self.losses.setdefault(job.program, losses)
        if len(losses) > len(expected):
            expected, self.losses[job.program] = losses, losses
        self.versions = told.get("versions", self.versions)
        self.circumstances["gpu"] = told.get("device", self.circumstances["gpu"])
        kept = {name: value for name, value in told.items() if name not in _DROPPED}
        run = {
            "program": job.program,
            "allocator": job.allocator.text,
            "round": job.round,
            **kept,
            **late(told),
            "has_same_losses": losses == self.losses[job.program][: len(losses)],
        }
        self.runs.append(run)

    def figures(self) -> dict[str, Any]:
        """Return everything, sizes in bytes."""
        self.circumstances["command"] = " ".join(["python", "-m", "gpu.against", *sys.argv[1:]])
        return {
            "run": self.circumstances,
            "versions": self.versions,
            "size": self.options.size,
            "steps": {
                name: self.options.steps or STEPS_OF.get(name, STEPS)
                for name in self.options.programs
            },
            "rounds": self.options.rounds,
            "seconds": round(time.monotonic() - self.began, 1),
            "is_complete": self.is_complete,
            "summary": summary(self.runs),
            "losses": self.losses,
            "runs": self.runs,
        }

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.options.output:
            path = Path(f"{self.options.output}.part")
            path.write_text(json.dumps(self.figures(), indent=1) + "\n", encoding="utf-8")
            path.replace(self.options.output)


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
            values[-1] - values[third - 1]
            for values in (
                told["gmlake"]["driver_calls_by_step"],
                told["gmlake"]["driver_ns_by_step"],
            )
        )
        figures["late_driver_calls_per_step"] = round(calls / steps, 2)
        figures["late_driver_seconds_per_step"] = round(ns / 1e9 / steps, 6)
        figures["late_driver_share"] = round(ns / 1e9 / figures["late_seconds"], 5)
    return figures


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
        failed = [run for run in rounds if not run.get("has_finished")]
        rows.append(
            {
                "program": program,
                "allocator": allocator,
                "rounds": len(rounds),
                "finished": len(done),
                "failed_steps": [run["failed_step"] for run in failed if "failed_step" in run],
                "failed": sorted({run["failed"] for run in failed if "failed" in run}),
                "has_same_losses": all(run["has_same_losses"] for run in rounds),
                **{
                    name: _spread(done, name)
                    for name in (
                        "late_step_seconds",
                        "late_seconds",
                        "peak_allocated_bytes",
                        "peak_reserved_bytes",
                        "utilization",
                        "retries",
                        "late_driver_calls_per_step",
                        "late_driver_seconds_per_step",
                        "late_driver_share",
                    )
                },
            }
        )
    return rows


# ---- what to run


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Return every run in its order."""
    return [
        Job(program, allocator, number)
        for number in range(options.rounds)
        for program in options.programs
        for allocator in options.allocators[:: -1 if number % 2 else 1]
    ]


def measure(results: Results) -> None:
    """Run the jobs one after the other, until all are done or the budget is spent."""
    options = results.options
    passed_on = ["--size", options.size, "--backend", options.backend]
    passed_on += ["--steps", str(options.steps)] if options.steps else []

    def start(job: Job) -> Run:
        return Run(job, passed_on, options.processes if job.program == "fsdp2" else 1)

    runs = started_ahead(jobs_of(options), start)
    try:
        for run in runs:
            left = results.left_seconds()
            if left <= results.expected_seconds(run.job):
                run.end()
                print("the budget is spent", flush=True)
                return
            told = run.finish(min(left, _LONGEST_RUN_SECONDS))
            if told.get("is_late") and results.left_seconds() <= 0:
                print("the budget is spent", flush=True)
                return
            results.add(run.job, told)
            results.write()
            print(line(results.runs[-1]), flush=True)
        results.is_complete = True
    finally:
        runs.close()


# ---- what came out


def line(run: dict[str, Any]) -> str:
    """Return a run in one line."""
    where = f"{run['program']}, {run['allocator']}, round {run['round']}"
    took = f"{run['wall_seconds']:.1f} s in all"
    if "failed" in run:
        return f"{where}: {run['failed']}; {took}"
    if not run["has_finished"]:
        return f"{where}: out of memory at step {run['failed_step']}; {took}"
    return f"{where}: {run['late_step_seconds']:.4f} s a step; {took}"


def _cell(row: dict[str, Any], name: str, shown: Callable[[float], str]) -> str:
    return shown(row[name]["median"]) if row[name] else ""


def show(rows: Sequence[dict[str, Any]], title: str) -> None:
    """Print one row for each allocator and program."""
    names = ("program", "allocator", "s/step")
    columns = (
        *("least", "most", "last 2/3, s", "to first", "live GiB", "reserved", "ratio"),
        *("driver", "calls/step", "losses"),
    )
    table = Table(*(Column(name, no_wrap=True) for name in names), *columns, title=title)
    first: dict[str, float] = {}
    before: str | None = None
    for row in rows:
        key = row["program"]
        if before not in (None, key):
            table.add_section()
        before = key
        if row["finished"] < row["rounds"]:
            reasons = [f"OOM, step {step}" for step in row["failed_steps"]]
            reasons += ["failed, see below"] * bool(row["failed"])
            table.add_row(key, row["allocator"], "\n".join(reasons))
            continue
        step = row["late_step_seconds"]
        took = row["late_seconds"]["median"] if row["late_seconds"] else 0.0
        base = first.setdefault(key, took)
        table.add_row(
            key,
            row["allocator"],
            *(f"{step[name]:.4f}" for name in ("median", "least", "most")),
            *((f"{took:.3f}", f"{took / base:.3f}") if took and base else ("", "")),
            _cell(row, "peak_allocated_bytes", lambda value: f"{value / GIB:.3f}"),
            _cell(row, "peak_reserved_bytes", lambda value: f"{value / GIB:.3f}"),
            _cell(row, "utilization", "{:.4f}".format),
            _cell(row, "late_driver_share", "{:.2%}".format),
            _cell(row, "late_driver_calls_per_step", "{:.1f}".format),
            "same" if row["has_same_losses"] else "DIFFER",
        )
    Console(width=max(Console().width, 170)).print(table)
    for row in rows:
        for failed in row["failed"]:
            print(f"{row['program']}, {row['allocator']}: {failed}")


def _programs(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PROGRAMS:
            reason = f"no program is called {name!r}; there are {', '.join(PROGRAMS)}"
            raise argparse.ArgumentTypeError(reason)
    return names


def _allocators(text: str) -> list[Allocator]:
    try:
        return [Allocator.of(name.strip()) for name in text.split(",") if name.strip()]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    """Measure, print, and keep it; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--programs", type=_programs, default=["llama-1b"], help=f"a,b: of {', '.join(PROGRAMS)}")
    add(
        "--allocators",
        type=_allocators,
        default=_allocators("default,expandable,gmlake"),
        help="a,b: of default, expandable, async, gmlake; gmlake:chunk_size=16MiB "
        "has settings, gmlake:path=FOLDER is imported from there, gmlake:region=NAME runs in a "
        "region that can sleep",
    )
    add("--rounds", type=int, default=3)
    add("--steps", type=int, help=f"{STEPS}, of generate {STEPS_OF['generate']}, unless said")
    add("--size", choices=("full", "tiny"), default="full")
    add("--budget-seconds", type=float, default=540, help="no run begins that would exceed it")
    add("--processes", type=int, default=2, help="and devices, of fsdp2")
    add("--backend", default="nccl", help="of fsdp2: nccl, gloo")
    add("--output", type=Path, help="file for the figures, as JSON; written after each run")
    add("--write", action="store_true", help="keep it as results/gpu_varying.json")
    options = parser.parse_args()
    results = Results(options)
    try:
        measure(results)
    finally:
        results.write()
        figures = results.figures()
        show(figures["summary"], f"{figures['size']}, {figures['run']['gpu']}")
    if options.write:
        del figures["run"]
        print(machine.write("gpu_varying", figures, gpu=results.circumstances["gpu"]))
    rows = figures["summary"]
    told = any(row["failed"] or not row["has_same_losses"] for row in rows)
    short = any(row["failed_steps"] for row in rows)
    return 1 if told or short else 0


if __name__ == "__main__":
    sys.exit(main())
