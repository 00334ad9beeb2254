"""What the planner reaches, against STAlloc and the lower bound, and what it costs.

python benchmarks/planner.py [--instances DIR] [--write] [--plot FILE] [TRACE...]

Three tables: the challenging instances of minimalloc within their capacity, which their file names
give (NAME.CAPACITY.csv); every workload by STAlloc's synthesis as published, by everything that
gmlake has, and the lower bound; and the time that generated steps take, from 10^4 to 10^6
requests. DIR holds instances as CSV, in a folder `large` those without a capacity.
"""

from __future__ import annotations

import argparse
import math
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gmlake import _core
from gmlake.planning.lifetimes import lifetimes_of, orderings_of
from workloads.lifetimes import add_phases, mixture_of_experts

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
        (result,) = gmlake.plan(path, capacity=capacity).results
        rows.append({**result.to_dict(), "trace": path.name})
    return rows


def workloads(folder: Path | None, traces: list[Path]) -> Iterator[tuple[str, Records, Any, int]]:
    """Yield name, lifetimes, orderings and alignment of everything there is."""
    for path in [*sorted((machine.ROOT / "examples" / "traces").glob("*.gmtrace")), *traces]:
        for trace in gmlake.load_traces(path):
            yield trace.name, lifetimes_of(trace), orderings_of(trace), 512
    for path in sorted(folder.glob("**/*.csv*")) if folder else ():
        yield path.name, gmlake.load_instance(path).lifetimes, None, 1
    for count in (10_000, 86_000, 281_669):
        yield f"experts, {count:,} requests", mixture_of_experts(count), None, 512


def against_stalloc(folder: Path | None, traces: list[Path]) -> list[dict[str, Any]]:
    """Return what STAlloc and everything together reach on each workload."""
    rows = []
    for name, found, orderings, alignment in workloads(folder, traces):
        lifetimes = add_phases(found)
        offsets = np.zeros(len(lifetimes), np.uint64)

        def solve(
            *methods: str,
            lifetimes: Records = lifetimes,
            offsets: Records = offsets,
            orderings: Any = orderings,  # noqa: ANN401 (an array or nothing)
            alignment: int = alignment,
        ) -> dict[str, Any]:
            solution = _core.solve(
                lifetimes, offsets, orderings=orderings, alignment=alignment, methods=methods
            )
            _core.check_placement(
                lifetimes,
                offsets,
                solution["peak_bytes"],
                orderings=orderings,
                alignment=alignment,
            )
            return {**solution}

        stalloc, best = solve("stalloc"), solve()
        bound = best["lower_bound_bytes"]
        rows.append(
            {
                "workload": name,
                "requests": len(lifetimes),
                "lower_bound_bytes": bound,
                "stalloc_peak_bytes": stalloc["peak_bytes"],
                "stalloc_ratio": stalloc["peak_bytes"] / bound,
                "stalloc_seconds": stalloc["time_ns"] / 1e9,
                "peak_bytes": best["peak_bytes"],
                "ratio": best["peak_bytes"] / bound,
                "seconds": best["time_ns"] / 1e9,
                "method": best["method"],
            }
        )
    return rows


# ---- scaling


def _timed(lifetimes: Records, offsets: Records, *methods: str) -> tuple[float, _core.Solution]:
    """Return the median time of a few rounds."""
    found = [_core.solve(lifetimes, offsets, methods=methods) for _ in range(ROUNDS)]
    return float(np.median([solution["time_ns"] for solution in found])) / 1e9, found[0]


def scaling(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return how long each size takes.

    seconds: every method that places once, and the check. searched_seconds: with what improves on
    the best of them, which takes what the budget leaves. Then the check and each method alone.
    """
    rows = []
    constructors = [name for name in _core.plan_methods() if name not in ("improved", "exact")]
    for count in sizes:
        lifetimes = mixture_of_experts(count)
        offsets = np.zeros(count, np.uint64)
        alone = {name: _timed(lifetimes, offsets, name)[0] for name in constructors}
        searched, best = _timed(lifetimes, offsets)
        seconds, solution = _timed(lifetimes, offsets, *constructors)
        begin = time.perf_counter()
        _core.check_placement(lifetimes, offsets, solution["peak_bytes"])
        rows.append(
            {
                "requests": count,
                "seconds": seconds,
                "searched_seconds": searched,
                "searched_ratio": best["peak_bytes"] / best["lower_bound_bytes"],
                "check_seconds": time.perf_counter() - begin,
                "ratio": solution["peak_bytes"] / solution["lower_bound_bytes"],
                "method": solution["method"],
                "ns_per_n_log_n": 1e9 * seconds / (count * math.log2(count)),
                "methods_seconds": alone,
            }
        )
    return rows


def exponent(rows: list[dict[str, Any]], key: str = "seconds") -> float:
    """Return the power of N that fits best; N log N itself has 1.09 here."""
    counts = np.log([row["requests"] for row in rows])
    return float(np.polyfit(counts, np.log([row[key] for row in rows]), 1)[0])


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw time against requests, with N log N through the largest."""
    # By name, since nothing else of gmlake needs it and type checkers need not find it.
    mpl = import_module("matplotlib")
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "gmlake"  # the same file each time
    plt = import_module("matplotlib.pyplot")

    counts = np.array([row["requests"] for row in rows], np.float64)
    figure, axes = plt.subplots(figsize=(7, 4.2))
    axes.loglog(
        counts, [row["seconds"] for row in rows], "o-", label="placed by every method, and checked"
    )
    axes.loglog(counts, [row["check_seconds"] for row in rows], ".-", label="the check alone")
    law = counts * np.log2(counts)
    axes.loglog(counts, law / law[-1] * rows[-1]["seconds"], "k:", label="N log N")
    axes.set_xlabel("requests")
    axes.set_ylabel("seconds, one core")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


# ---- showing


def _show_challenging(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table("instance", "buffers", "capacity", "peak", "fits", "method", "s")
    for row in rows:
        table.add_row(
            row["trace"],
            f"{row['requests']:,}",
            f"{row['capacity_bytes']:,}",
            f"{row['peak_bytes']:,}",
            "yes" if row["fits"] and row["valid"] else "NO",
            row["method"],
            f"{row['seconds']:.3f}",
        )
    console.print(table, f"all: {sum(row['seconds'] for row in rows):.2f} s")


def _show_workloads(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table("workload", "requests", "bound MiB", "STAlloc", "s", "gmlake", "s", "method")
    for row in rows:
        table.add_row(
            row["workload"],
            f"{row['requests']:,}",
            f"{row['lower_bound_bytes'] / MIB:,.1f}",
            f"{row['stalloc_ratio']:.4f}",
            f"{row['stalloc_seconds']:.3f}",
            f"{row['ratio']:.5f}",
            f"{row['seconds']:.3f}",
            row["method"],
        )
    console.print(table)


def _show_scaling(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(
        "requests", "s", "ns / (N log2 N)", "peak / bound", "method", "searched s", "check s"
    )
    for row in rows:
        table.add_row(
            f"{row['requests']:,}",
            f"{row['seconds']:.3f}",
            f"{row['ns_per_n_log_n']:.1f}",
            f"{row['ratio']:.5f}",
            row["method"],
            f"{row['searched_seconds']:.3f}",
            f"{row['check_seconds']:.3f}",
        )
    console.print(table)
    alone = Table("seconds alone", *(f"{row['requests']:,}" for row in rows))
    for name in rows[0]["methods_seconds"]:
        alone.add_row(name, *(f"{row['methods_seconds'][name]:.3f}" for row in rows))
    console.print(alone, f"time grows as N^{exponent(rows):.3f}")


def main() -> None:
    """Run the three tables, and keep them with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--instances", type=Path, metavar="DIR", help="instances as CSV")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="requests of the largest step")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the last table as SVG")
    parser.add_argument("--write", action="store_true", help="keep it as results/planner.json")
    arguments = parser.parse_args()
    console = Console(width=140)
    figures: dict[str, Any] = {}
    if arguments.instances:
        figures["challenging"] = challenging(arguments.instances)
        _show_challenging(console, figures["challenging"])
    figures["workloads"] = against_stalloc(arguments.instances, arguments.traces)
    _show_workloads(console, figures["workloads"])
    figures["scaling"] = scaling(tuple(size for size in SIZES if size <= arguments.most))
    figures["scaling_exponent"] = exponent(figures["scaling"])
    _show_scaling(console, figures["scaling"])
    if arguments.plot:
        plot(figures["scaling"], arguments.plot)
    if arguments.write:
        print(machine.write("planner", figures, gpu="none: planning uses none"))


if __name__ == "__main__":
    main()
