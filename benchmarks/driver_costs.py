"""What each driver call costs on a device, by chunk size and count; needs a GPU.

python benchmarks/driver_costs.py [--program build/bench/benchmarks/c/bench_driver] [--write]
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import defaultdict
from typing import Any

from rich.console import Console
from rich.table import Table

import machine

PROGRAM = machine.ROOT / "build/bench/benchmarks/c/bench_driver"


def _title(kind: str) -> str:
    titles = {
        "chunk": "one handle or block of that size, median us",
        "range": "2 MiB handles in one range, median us for all of them",
        "event": "streams and events with nothing pending, median us",
    }
    return titles[kind]


def show(calls: list[dict[str, Any]]) -> None:
    """Print a table for each kind of measurement, sizes across and calls down."""
    console = Console()
    for kind in dict.fromkeys(entry["kind"] for entry in calls):
        rows: dict[str, list[str]] = defaultdict(list)
        sizes = []
        for entry in (entry for entry in calls if entry["kind"] == kind):
            rows[entry["call"]].append(f"{entry['median_ns'] / 1e3:,.1f}")
            if entry["size"] not in sizes:
                sizes.append(entry["size"])
        labels = [f"{size >> 20} MiB" if kind == "chunk" else str(size or "") for size in sizes]
        table = Table(_title(kind), *labels)
        for call, figures in rows.items():
            table.add_row(call, *figures)
        console.print(table)


def main() -> None:
    """Measure, print, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--program", default=PROGRAM, help="the C micro-benchmark")
    parser.add_argument("--driver", default="cuda", help="cuda, or host or sim to try it out")
    parser.add_argument("--write", action="store_true", help="keep it as results/driver_costs.json")
    arguments = parser.parse_args()
    done = subprocess.run(  # noqa: S603
        [arguments.program, arguments.driver], stdout=subprocess.PIPE, text=True, check=True
    )
    measured = json.loads(done.stdout)
    show(measured["calls"])
    if arguments.write:
        print(machine.write("driver_costs", measured, gpu=measured["device"]))


if __name__ == "__main__":
    main()
