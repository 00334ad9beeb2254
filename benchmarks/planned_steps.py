"""What planned steps take: every program of workloads/steps.py with `stitch` and with AutoPlan.

python benchmarks/planned_steps.py [--write]

Runs on the stand-in GPU, so that nothing here is a time. Each program is a process of its own for
each way of serving it.

  live      peak of the bytes that the program held
  reserved  peak of what was taken from the device, MiB, with `stitch` and with AutoPlan
  calls     driver calls that take, map or give memory, in all steps together, with both
  hits      of the requests of planned steps that a plan places, those that got their address
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

import machine
from workloads.ways import run_apart

MIB = 1 << 20
WAYS = {"stitch": "borrowing", "planned": "plan"}
MOST_MORE = 0.002
"""What AutoPlan may reserve above `stitch`, as a part of it."""
NAMES = (
    *("gpt2-small", "gpt2-medium", "gpt2-medium-checkpoint", "1.3b-checkpoint"),
    *("three-lengths", "three-lengths-checkpoint", "varying", "varying-checkpoint", "tight"),
    *("accumulation", "evaluation", "validation", "zero-first", "decode", "convolutions", "lora"),
    *("moe", "moe-checkpoint", "moe-repeated", "fsdp2"),
    *("wavelet", "sharded", "buckets", "prefetch", "experts", "offload"),
)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one program by way."""
    runs: dict[str, Any] = {"program": name}
    for way, served in WAYS.items():
        settings = ("--steps", str(options.steps), "--scale", options.scale)
        told = run_apart(name, served, settings, "eager")
        if "failed" not in told:
            steps = told.pop("steps")
            told = {
                "live_bytes": told["peak_live_bytes"],
                "reserved_bytes": told["peak_reserved_bytes"],
                "steps": len(steps),
                "memory_calls": sum(step["memory_calls"] for step in steps),
                "planned": told["planned"],
            }
        runs[way] = told
    print(name, *(f"{way}: {runs[way].get('failed', 'ran')}" for way in WAYS))
    sys.stdout.flush()
    return runs


def findings(results: list[dict[str, Any]]) -> list[str]:
    """Return where planning costs something, in words."""
    found = []
    for result in results:
        stitch, planned = result["stitch"], result["planned"]
        failed = [run["failed"] for run in (stitch, planned) if "failed" in run]
        found += [f"{result['program']}: {reason}" for reason in failed]
        if failed:
            continue
        more = planned["reserved_bytes"] / stitch["reserved_bytes"] - 1
        if more > MOST_MORE:
            found.append(f"{result['program']}: {more:.2%} more is reserved")
        calls = planned["memory_calls"] - stitch["memory_calls"]
        if calls > 0:
            found.append(f"{result['program']}: {calls} driver calls more")
    return found


def show(results: list[dict[str, Any]]) -> None:
    """Print one row for each program."""
    table = Table("program", "live MiB", "stitch", "planned", "live/reserved", "calls", "planned")
    for name in ("steps", "with a plan", "requests", "hits"):
        table.add_column(name)
    for result in results:
        stitch, planned = result["stitch"], result["planned"]
        if "failed" in stitch or "failed" in planned:
            table.add_row(result["program"], "failed")
            continue
        told = planned["planned"]
        rates = [rate for rate in told["steps"] if rate is not None]
        table.add_row(
            *(result["program"], f"{stitch['live_bytes'] / MIB:,.1f}"),
            *(f"{run['reserved_bytes'] / MIB:,.0f}" for run in (stitch, planned)),
            f"{planned['live_bytes'] / planned['reserved_bytes']:.4f}",
            *(f"{run['memory_calls']:,}" for run in (stitch, planned)),
            *(str(planned["steps"]), str(len(rates)), f"{told['requests']:,}"),
            f"{sum(rates) / len(rates):.2%}" if rates else "",
        )
    Console(width=max(Console().width, 130)).print(table)


def main() -> int:
    """Measure, print, and keep it with --write; 1 where planning costs something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--programs", nargs="+", choices=NAMES, metavar="NAME", default=NAMES)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--scale", default="short")
    parser.add_argument("--write", action="store_true", help="keep results/planned_steps.json")
    options = parser.parse_args()
    results = [measure(name, options) for name in options.programs]
    short = findings(results)
    show(results)
    print(*short, sep="\n")
    if options.write:
        figures = {
            "steps": options.steps,
            "scale": options.scale,
            "programs": results,
            "findings": short,
        }
        print(machine.write("planned_steps", figures, gpu="none: all is of the stand-in"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
