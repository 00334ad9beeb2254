"""What the planner reaches, against the lower bound, and what it costs.

python benchmarks/planner.py [--instances DIR] [--write] [TRACE...]

Three tables: the challenging instances of minimalloc within their capacity, which their file names
give (NAME.CAPACITY.csv); every workload and its lower bound; and the time that generated steps
take, from 10^4 to 10^6 requests.
DIR holds instances as CSV, in a folder `large` those without a capacity.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gmlake.planner import _planner
from gmlake.planner.lifetimes import lifetimes_of, orderings_of
from workloads.lifetimes import mixture_of_experts, read_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gmlake.trace.layout import Records

SIZES = (10_000, 20_000, 50_000, 86_000, 100_000, 200_000, 281_669, 500_000, 1_000_000)
ROUNDS = 3
MIB = 1 << 20


def challenging(folder: Path) -> list[dict[str, Any]]:
    """Place each instance whose name says its capacity within it."""
    rows = []
    for path in sorted(folder.glob("*.*.csv")):
        capacity = int(path.name.split(".")[1])
        lifetimes = read_instance(path)
        offsets = np.zeros(len(lifetimes), np.uint64)
        found = _planner.solve(lifetimes, offsets, alignment=1, capacity=capacity)
        _planner.check_placement(lifetimes, offsets, found["peak_bytes"], alignment=1)
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
    for count in (10_000, 86_000, 281_669):
        yield f"experts, {count:,} requests", mixture_of_experts(count), None, 512


def against_bounds(folder: Path | None, traces: list[Path]) -> list[dict[str, Any]]:
    """Return what is reached on each workload."""
    rows = []
    for name, lifetimes, orderings, alignment in workloads(folder, traces):
        offsets = np.zeros(len(lifetimes), np.uint64)
        best = _planner.solve(lifetimes, offsets, orderings=orderings, alignment=alignment)
        peak_bytes, bound = best["peak_bytes"], best["lower_bound_bytes"]
        _planner.check_placement(
            lifetimes, offsets, peak_bytes, orderings=orderings, alignment=alignment
        )
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


# ---- scaling


def scaling(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return how long each size takes, in the median of a few rounds, and the check alone."""
    rows = []
    for count in sizes:
        lifetimes = mixture_of_experts(count)
        offsets = np.zeros(count, np.uint64)
        rounds = [_planner.solve(lifetimes, offsets) for _ in range(ROUNDS)]
        seconds = float(np.median([solution["time_ns"] for solution in rounds])) / 1e9
        solution = rounds[-1]
        begin = time.perf_counter()
        _planner.check_placement(lifetimes, offsets, solution["peak_bytes"])
        rows.append(
            {
                "requests": count,
                "seconds": seconds,
                "check_seconds": time.perf_counter() - begin,
                "ratio": solution["peak_bytes"] / solution["lower_bound_bytes"],
                "method": solution["method"],
                "ns_per_n_log_n": 1e9 * seconds / (count * math.log2(count)),
            }
        )
    return rows


def exponent(rows: list[dict[str, Any]]) -> float:
    """Return the power of N that fits best; N log N itself has 1.09 here."""
    counts = np.log([row["requests"] for row in rows])
    return float(np.polyfit(counts, np.log([row["seconds"] for row in rows]), 1)[0])


# ---- showing


def _show_challenging(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table("instance", "buffers", "capacity", "peak", "fits", "method", "s")
    for row in rows:
        table.add_row(
            row["trace"],
            f"{row['requests']:,}",
            f"{row['capacity_bytes']:,}",
            f"{row['peak_bytes']:,}",
            "yes" if row["fits"] else "NO",
            row["method"],
            f"{row['seconds']:.3f}",
        )
    console.print(table, f"all: {sum(row['seconds'] for row in rows):.2f} s")


def _show_workloads(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table("workload", "requests", "bound MiB", "peak / bound", "s", "method")
    for row in rows:
        table.add_row(
            row["workload"],
            f"{row['requests']:,}",
            f"{row['lower_bound_bytes'] / MIB:,.1f}",
            f"{row['ratio']:.5f}",
            f"{row['seconds']:.3f}",
            row["method"],
        )
    console.print(table)


def _show_scaling(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table("requests", "s", "ns / (N log2 N)", "peak / bound", "method", "check s")
    for row in rows:
        table.add_row(
            f"{row['requests']:,}",
            f"{row['seconds']:.3f}",
            f"{row['ns_per_n_log_n']:.1f}",
            f"{row['ratio']:.5f}",
            row["method"],
            f"{row['check_seconds']:.3f}",
        )
    console.print(table, f"time grows as N^{exponent(rows):.3f}")


def main() -> None:
    """Run the three tables, and keep them with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--instances", type=Path, metavar="DIR", help="instances as CSV")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="requests of the largest step")
    parser.add_argument("--write", action="store_true", help="keep it as results/planner.json")
    arguments = parser.parse_args()
    console = Console(width=140)
    figures: dict[str, Any] = {}
    if arguments.instances:
        figures["challenging"] = challenging(arguments.instances)
        _show_challenging(console, figures["challenging"])
    figures["workloads"] = against_bounds(arguments.instances, arguments.traces)
    _show_workloads(console, figures["workloads"])
    figures["scaling"] = scaling(tuple(size for size in SIZES if size <= arguments.most))
    figures["scaling_exponent"] = exponent(figures["scaling"])
    _show_scaling(console, figures["scaling"])
    if arguments.write:
        print(machine.write("planner", figures, gpu="none: planning uses none"))


if __name__ == "__main__":
    main()
