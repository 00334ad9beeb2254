"""ns per allocate+free pair, and events per second of a replay, by policy.

    python benchmarks/speed.py [--programs build/bench/benchmarks/c] [--plans] [--write]

With --plans instead: ns per request of a step that repeats, stitched and by a plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gmlake import _core
from gmlake.trace.layout import REQUEST, Kind, Records

PROGRAMS = machine.ROOT / "build/bench/benchmarks/c"
EVENTS = 1_000_000
ROUNDS = 5


def long_trace(events: int) -> tuple[Records, int]:
    """Return at least `events` requests, a shipped trace over and over, and their id count.

    Each repetition frees what it leaves live, so that the next begins like the first.
    """
    trace = gmlake.load(machine.ROOT / "examples/traces/gpt2-xl.gmtrace").devices[0].trace
    once = trace.replay_requests()
    freed = np.zeros(trace.id_count, bool)
    freed[once["id"][once["kind"] == Kind.FREE]] = True
    rest = np.zeros(int((~freed).sum()), REQUEST)
    rest["id"], rest["kind"] = np.flatnonzero(~freed), Kind.FREE
    step = np.concatenate([once, rest])
    return np.tile(step, events // len(step) + 1), trace.id_count


def replay_rates(events: int) -> dict[str, dict[str, float]]:
    """Return events per second: the first repetition of the trace apart, the rest as a median."""
    requests, id_count = long_trace(events)
    names = gmlake.policies()
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            with gmlake.Lake("sim", name, capacity="1TiB") as lake:
                total_ns = _core.Replay(lake, id_count).run(requests)["seconds_ns"]
            rates[name].append(len(requests) / total_ns * 1e9)
    return {
        name: {"events": len(requests), "events_per_second": statistics.median(values)}
        for name, values in rates.items()
    }


def run(program: Path) -> dict[str, Any]:
    """Return what a C benchmark prints."""
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def show(scenarios: dict[str, Any], rates: dict[str, dict[str, float]]) -> None:
    """Print the tables."""
    console = Console()
    names = gmlake.policies()
    table = Table("ns per pair, median", *names)
    for scenario, results in scenarios.items():
        table.add_row(scenario, *(f"{results[name]['median_ns']:,.0f}" for name in names))
    console.print(table)
    table = Table("replay", *names)
    rate = (f"{rates[name]['events_per_second'] / 1e6:.1f}" for name in names)
    table.add_row("million events/s", *rate)
    console.print(table)


def measure_plans(programs: Path, *, is_kept: bool) -> None:
    """Run what compares plans with stitching."""
    found = run(programs / "bench_plan")
    table = Table(found["unit"], "stitched", "by a plan", "part")
    for scenario, times in found["scenarios"].items():
        stitched_ns, planned_ns = times["stitched_ns"], times["planned_ns"]
        table.add_row(
            scenario, f"{stitched_ns:.0f}", f"{planned_ns:.0f}", f"{planned_ns / stitched_ns:.2f}"
        )
    Console().print(table)
    if is_kept:
        print(machine.write("plan_speed", found))


def main() -> None:
    """Run everything, print it, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--programs", default=PROGRAMS, type=Path, help="where the C ones are")
    parser.add_argument("--plans", action="store_true", help="plans alone, as plan_speed.json")
    parser.add_argument("--write", action="store_true", help="keep it as results/speed.json")
    arguments = parser.parse_args()
    if arguments.plans:
        measure_plans(arguments.programs, is_kept=arguments.write)
        return
    pairs = run(arguments.programs / "bench_policies")
    rates = replay_rates(EVENTS)
    show(pairs["scenarios"], rates)
    if arguments.write:
        print(machine.write("speed", {"pairs": pairs, "replay": rates}))


if __name__ == "__main__":
    main()
