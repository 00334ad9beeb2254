"""ns per allocate+free pair, and events per second of a replay, by policy.

python benchmarks/speed.py [--programs build/bench/benchmarks/c] [--write]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

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


def main() -> None:
    """Run everything, print it, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--programs", default=PROGRAMS, type=Path, help="where the C ones are")
    parser.add_argument("--write", action="store_true", help="keep it as results/speed.json")
    arguments = parser.parse_args()
    pairs = run(arguments.programs / "bench_policies")
    rates = replay_rates(EVENTS)
    machine.show(
        "ns per pair, median",
        (
            {"scenario": scenario} | {name: told["median_ns"] for name, told in results.items()}
            for scenario, results in pairs["scenarios"].items()
        ),
    )
    machine.show("replays", ({"policy": name, **told} for name, told in rates.items()))
    if arguments.write:
        print(machine.write("speed", {"pairs": pairs, "replay": rates}))


if __name__ == "__main__":
    main()
