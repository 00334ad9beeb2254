"""Two trainings in turn on two streams of a GPU, as in Wavelet: memory, speed, and the losses.

    PYTHONPATH=benchmarks python -m gpu.streams [--write]

Each way of serving memory (workloads/ways.py) runs in processes of its own: --rounds of them, every
other round in the opposite order, since a GPU that gets warm gets slower. The losses of every run
have to be those of the first, bit for bit. A step is a forward and a backward pass of both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import machine
from workloads.ways import WAYS, per_step, run_apart

GIB, MIB = 1 << 30, 1 << 20
PROGRAMS = ("wavelet", "wavelet-varying")
SIZES = ("full", "short", "tiny")


def _late_seconds(run: dict[str, Any]) -> float:
    steps = run["steps"]
    return float(statistics.median(step["seconds"] for step in steps[len(steps) // 2 :]))


def measure(program: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a program every way, and tell of the first round; times are medians over the rounds."""
    how = ["--scale", options.size, "--steps", str(options.steps), "--timed", "--deterministic"]
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
    for number in range(options.rounds):
        for way in options.ways[:: -1 if number % 2 else 1]:
            told = run_apart(program, way, how)
            runs[way].append(told)
            print(f"{program}, round {number}, {way}: {told.get('failed', 'done')}", flush=True)
    expected = next(iter(runs.values()))[0].get("losses")
    summary: dict[str, Any] = {}
    for way, rounds in runs.items():
        told = next((one for one in rounds if "failed" in one), rounds[0])
        if "failed" in told:
            summary[way] = {"failed": told["failed"], "has_same_losses": False}
            continue
        same = [one.pop("losses") == expected for one in rounds]
        seconds = [_late_seconds(one) for one in rounds]
        summary[way] = {
            **told,
            "per_step": per_step(told["steps"]),
            "steps": {
                name: [step[name] for step in told["steps"]]
                for name in ("seconds", "memory_calls", "cross_stream_waits")
            },
            "has_same_losses": all(same),
            "rounds_seconds": seconds,
            "median_step_seconds": round(statistics.median(seconds), 4),
            "rounds_reserved_bytes": [one["peak_reserved_bytes"] for one in rounds],
        }
    return summary


def show(figures: dict[str, Any]) -> None:
    """Print one row for each way and program."""
    columns = (
        *("program", "way", "live GiB", "reserved GiB", "ratio", "s/step", "waits", "borrowed MiB"),
        *("memory calls", "losses"),
    )
    table = Table(*columns, title=f"{figures['size']}, {figures['steps']} steps")
    for program, runs in figures["programs"].items():
        for way, told in runs.items():
            if "failed" in told:
                table.add_row(program, way, told["failed"])
                continue
            step = told["per_step"]
            table.add_row(
                *(program, way),
                *(f"{told[f'peak_{kind}_bytes'] / GIB:.3f}" for kind in ("live", "reserved")),
                f"{told['reserved_to_live']:.3f}",
                f"{told['median_step_seconds']:.4f}",
                f"{step['cross_stream_waits']:g}",
                f"{step['borrowed_bytes'] / MIB:.0f}",
                f"{step['memory_calls']:g}",
                "same" if told["has_same_losses"] else "DIFFER",
            )
        table.add_section()
    Console(width=max(Console().width, 120)).print(table)


def main() -> int:
    """Measure, print, and keep it with --write; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_streams.json")
    options = parser.parse_args()
    programs = {program: measure(program, options) for program in options.programs}
    figures = {
        "size": options.size,
        "steps": options.steps,
        "rounds": options.rounds,
        "programs": programs,
    }
    show(figures)
    every = [told for runs in programs.values() for told in runs.values()]
    if options.write or options.output:
        gpu = machine.devices_of({f"{number}": told for number, told in enumerate(every)})
        print(machine.write("gpu_streams", figures, path=options.output, gpu=gpu))
    return 0 if all(told["has_same_losses"] for told in every) else 1


if __name__ == "__main__":
    sys.exit(main())
