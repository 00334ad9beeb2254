"""Reserved memory of programs of several streams, where streams lend each other memory or not.

python benchmarks/wavelet.py [--write]

Runs on the stand-in GPU, so that nothing here is a time. Each program is a process of its own for
each way of serving it (workloads/sharing.py, workloads/ways.py). Two trainings in turn, as in
Wavelet, run at three paces of the device: `eager` has done all work at once, with `lag` the newest
32 operations of each stream are pending, with `manual` all that nothing waits for. The other
programs run with `lag`.

  live      peak of the bytes that the program held, all streams together
  reserved  peak of what was taken from the device
  waits     one stream was made to wait for another, per step of the second half of the run
  borrowed  MiB that one stream took of another's free memory, per step
  calls     driver calls per step that take or give memory, and that order streams
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import machine
from workloads.ways import WAYS, per_step, run_apart

GIB, MIB = 1 << 30, 1 << 20
PACED = ("wavelet", "wavelet-threads")
PACES = ("eager", "lag", "manual")
OTHERS = (
    *("wavelet-varying", "sharded", "buckets", "serving", "pipeline", "producer"),
    *("prefetch", "experts", "offload", "storm", "storm-2"),
)
_COLUMNS = (
    *("program", "pace", "way", "live GiB", "reserved GiB", "ratio", "waits", "borrowed"),
    *("memory calls", "order calls"),
)


def measure(name: str, pace: str, ways: list[str], steps: int, scale: str) -> dict[str, Any]:
    """Return the figures of one program by way."""
    runs: dict[str, Any] = {}
    for way in ways:
        told = run_apart(name, way, ("--steps", str(steps), "--scale", scale), pace)
        if "failed" not in told:
            for unsaid in ("device", "losses"):  # nothing computes here
                told.pop(unsaid)
            told["per_step"] = per_step(told["steps"])
            told["steps"] = {
                name: [step[name] for step in told["steps"]]
                for name in ("memory_calls", "cross_stream_waits")
            }
        runs[way] = told
        print(f"{name}, {pace}, {way}: {told.get('failed', told.get('reserved_to_live'))}")
        sys.stdout.flush()
    return {"program": name, "pace": pace, "runs": runs}


def findings(results: list[dict[str, Any]], most_ratio: float = 1.05) -> list[str]:
    """Return what falls short of what borrowing is for, in words."""
    found = []
    for result in results:
        where = f"{result['program']}, {result['pace']}"
        runs = result["runs"]
        failed = {way: run["failed"] for way, run in runs.items() if "failed" in run}
        found += [f"{where}, {way}: {reason}" for way, reason in failed.items()]
        good = {way: run for way, run in runs.items() if way not in failed}
        with_it, without = good.get("borrowing"), good.get("alone")
        if with_it and result["program"] in PACED and with_it["reserved_to_live"] > most_ratio:
            found.append(f"{where}: reserved is {with_it['reserved_to_live']} of live")
        if with_it and without:
            excess = with_it["peak_reserved_bytes"] - without["peak_reserved_bytes"]
            if excess > 0:
                found.append(f"{where}: borrowing takes {excess / MIB:.1f} MiB more than none")
    return found


def show(results: list[dict[str, Any]]) -> None:
    """Print one row for each run."""
    table = Table(*_COLUMNS)
    for result in results:
        for way, run in result["runs"].items():
            if "failed" in run:
                table.add_row(result["program"], result["pace"], way, run["failed"])
                continue
            step = run["per_step"]
            table.add_row(
                *(result["program"], result["pace"], way),
                *(f"{run[f'peak_{kind}_bytes'] / GIB:.3f}" for kind in ("live", "reserved")),
                f"{run['reserved_to_live']:.3f}",
                f"{step['cross_stream_waits']:g}",
                f"{step['borrowed_bytes'] / MIB:.0f}",
                f"{step['memory_calls']:g}",
                f"{step['order_calls']:g}",
            )
        table.add_section()
    Console(width=max(Console().width, 120)).print(table)


def main() -> int:
    """Measure, print, and keep it with --write; 1 where something falls short."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--programs", nargs="+", choices=(*PACED, *OTHERS), metavar="NAME")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--paces", nargs="+", choices=PACES, default=list(PACES), metavar="PACE")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--scale", default="full", help="short and tiny only try it out")
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON")
    parser.add_argument("--write", action="store_true", help="keep it as results/wavelet.json")
    options = parser.parse_args()
    results = [
        measure(name, pace, options.ways, options.steps, options.scale)
        for name in options.programs or (*PACED, *OTHERS)
        for pace in (options.paces if name in PACED else ["lag"])
    ]
    short = findings(results)
    show(results)
    print(*short, sep="\n")
    figures = {
        "ways": {name: {"help": way.help, "knobs": way.knobs} for name, way in WAYS.items()},
        "steps": options.steps,
        "scale": options.scale,
        "results": results,
        "findings": short,
    }
    if options.write or options.output:
        gpu = "none: every figure is of the stand-in"
        print(machine.write("wavelet", figures, path=options.output, gpu=gpu))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
