"""What the planner reaches, against the lower bound, and what it costs.

python benchmarks/planner.py [--instances DIR] [--write] [TRACE...]

Two tables: the challenging instances of minimalloc within their capacity, which their file names
give (NAME.CAPACITY.csv), and every workload and its lower bound.
DIR holds instances as CSV, in a folder `large` those without a capacity.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gmlake
import machine
from gmlake.planner import _planner
from gmlake.planner.lifetimes import lifetimes_of, orderings_of
from gmlake.planner.plan_layout import LIFETIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gmlake.trace.layout import Records

MIB = 1 << 20


def read_instance(path: Path) -> Records:
    """Return the lifetimes of a CSV with the columns lower, upper and size, plain or gzip."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        header = [name.strip() for name in file.readline().split(",")]
        columns = [header.index(name) for name in ("lower", "upper", "size")]
        table = np.loadtxt(file, np.int64, delimiter=",", usecols=columns, ndmin=2)
    lifetimes = np.zeros(len(table), LIFETIME)
    lifetimes["start"] = table[:, 0] - table[:, 0].min()
    lifetimes["end"] = table[:, 1] - table[:, 0].min()
    lifetimes["size_bytes"] = table[:, 2]
    return lifetimes


def challenging(folder: Path) -> list[dict[str, Any]]:
    """Place each instance whose name says its capacity within it."""
    rows = []
    for path in sorted(folder.glob("*.*.csv")):
        capacity = int(path.name.split(".")[1])
        lifetimes = read_instance(path)
        offsets = np.zeros(len(lifetimes), np.uint64)
        found = _planner.solve(lifetimes, offsets, alignment=1, capacity=capacity)
        rows.append(
            {
                "trace": path.name,
                "requests": len(lifetimes),
                "lower_bound_bytes": found["lower_bound_bytes"],
                "peak_bytes": found["peak_bytes"],
                "capacity_bytes": capacity,
                "fits": found["peak_bytes"] <= capacity,
                "method": found["method"],
                "seconds": found["time_ns"] / 1e9,
            }
        )
    return rows


def workloads(folder: Path | None, traces: list[Path]) -> Iterator[tuple[str, Records, Any, int]]:
    """Yield name, lifetimes, orderings and alignment of everything there is."""
    for path in [*sorted((machine.ROOT / "examples" / "traces").glob("*.gmtrace")), *traces]:
        for trace in [one.trace for one in gmlake.load(path)]:
            yield trace.name, lifetimes_of(trace), orderings_of(trace), 512
    for path in sorted(folder.glob("**/*.csv*")) if folder else ():
        yield path.name, read_instance(path), None, 1


def against_bounds(folder: Path | None, traces: list[Path]) -> list[dict[str, Any]]:
    """Return what is reached on each workload."""
    rows = []
    for name, lifetimes, orderings, alignment in workloads(folder, traces):
        offsets = np.zeros(len(lifetimes), np.uint64)
        best = _planner.solve(lifetimes, offsets, orderings=orderings, alignment=alignment)
        peak_bytes, bound = best["peak_bytes"], best["lower_bound_bytes"]
        rows.append(
            {
                "workload": name,
                "requests": len(lifetimes),
                "lower_bound_bytes": bound,
                "peak_bytes": peak_bytes,
                "ratio": peak_bytes / bound,
                "seconds": best["time_ns"] / 1e9,
                "method": best["method"],
            }
        )
    return rows


def main() -> None:
    """Run both tables, and keep them with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--instances", type=Path, metavar="DIR", help="instances as CSV")
    parser.add_argument("--write", action="store_true", help="keep it as results/planner.json")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    if arguments.instances:
        figures["challenging"] = challenging(arguments.instances)
        machine.show("within a capacity", figures["challenging"])
    figures["workloads"] = against_bounds(arguments.instances, arguments.traces)
    machine.show("beside the bound", figures["workloads"])
    if arguments.write:
        print(machine.write("planner", figures, gpu="none: planning uses none"))


if __name__ == "__main__":
    main()
