"""Reserved memory of each policy on recorded programs, and the driver's part that it takes.

python benchmarks/utilization.py TRACE... [--fractions 1.003,1.02] [--write [NAME]]

With --fractions each trace is replayed once more for each, with so many times its live peak as all
the memory there is, and the refused requests are counted.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gmlake
import machine
from gmlake import _core
from gmlake.replaying import ReplayResult
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    from gmlake.trace import Trace

MEMORY_CALLS = (
    *("create", "release", "reserve", "unreserve", "map", "unmap", "set_access"),
    *("malloc", "free"),
)
DEVICE = "80GiB"


def replayed(trace: Trace, capacity: int | str = DEVICE) -> list[ReplayResult]:
    """Return what each policy did."""
    return list(gmlake.replay(of_one_trace(trace), "all", capacity=capacity).results)


def late_calls(trace: Trace, name: str) -> float | None:
    """Return the driver's memory calls per step behind the step that holds the most.

    None where no two steps are behind it.
    """
    requests = trace.replay_requests()
    marks = np.flatnonzero(requests["kind"] == Kind.MARK)
    parts = [part for part in np.split(requests, marks) if len(part)]
    peaks, calls = [], []
    with gmlake.Lake("sim", name, capacity=DEVICE) as lake:
        replay = _core.Replay(lake, trace.id_count)
        for part in parts:
            lake.reset_peaks()
            replay.run(part)
            stats = lake.stats()
            peaks.append(stats["peak_live_bytes"])
            calls.append(sum(stats["driver_calls"].get(name, 0) for name in MEMORY_CALLS))
    late = len(parts) - 1 - int(np.argmax(peaks))
    return (calls[-1] - calls[-1 - late]) / late if late > 1 else None


def refused(trace: Trace, fraction: float, live_bytes: int) -> dict[str, int]:
    """Return how many requests each policy refuses in `fraction` times the live peak."""
    results = replayed(trace, int(fraction * live_bytes))
    return {result.policy: result.states["oom"] for result in results}


def main() -> None:
    """Replay each trace, print the tables, and keep the figures with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--fractions", default="", help="of the live peak, divided by commas")
    parser.add_argument(
        "--write", nargs="?", const="utilization", metavar="NAME", help="keep results/NAME.json"
    )
    arguments = parser.parse_args()
    fractions = [float(text) for text in arguments.fractions.split(",") if text]
    names = gmlake.policies()
    kept: list[dict[str, Any]] = []
    for path in arguments.traces:
        trace = gmlake.load(path).devices[0].trace
        results = replayed(trace)
        live_bytes = results[0].peak_live_bytes
        late = {name: late_calls(trace, name) for name in names}
        edge = {str(fraction): refused(trace, fraction, live_bytes) for fraction in fractions}
        kept += [
            {
                **asdict(result),
                "late_calls_per_step": late[result.policy],
                "refused": {fraction: counts[result.policy] for fraction, counts in edge.items()},
            }
            for result in results
        ]
    shown = (
        "trace",
        "policy",
        "utilization",
        "driver_time_ns",
        "late_calls_per_step",
        "refused",
    )
    machine.show(DEVICE, ({name: told[name] for name in shown} for told in kept))
    if arguments.write:
        print(machine.write(arguments.write, {"device": DEVICE, "results": kept}))


if __name__ == "__main__":
    main()
