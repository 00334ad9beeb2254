#!/usr/bin/env python3
"""Compare recordings of the same workloads made on two devices, event by event.

    python benchmarks/workloads/compare.py recordings/standin recordings/h200 [--write NAME]

Two recordings agree where the same requests of the same sizes on the same streams came in the same
order. Addresses are left out: each device has its own. So is the order of frees with no allocation
between them, since PyTorch empties hash tables of pointers. What the allocator itself decided
(segments) is compared apart, and when it saw that a block was free (free_completed) not at all.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine

MIB = 1 << 20
Event = tuple[str, int, int]


@dataclass(frozen=True)
class Comparison:
    """One workload on two devices, A and B. Sizes are in bytes.

    requests: allocations and frees in A and B. requests_agree: all the same, in the same order.
    segments_agree: what the allocator took from the device and gave back, too.
    common: share of the requests of the longer recording that the other has too, in any order.
    """

    workload: str
    requests: tuple[int, int]
    requests_agree: bool
    segments_agree: bool
    common: float
    peak_allocated_bytes: tuple[int, int]
    peak_reserved_bytes: tuple[int, int]


def _events(path: Path) -> list[Event]:
    """Return (action, size, stream) for each memory event; streams are numbered as they appear."""
    # Written by record.py on our own machines; gmlake's reader is for the files of others.
    snapshot = pickle.loads(path.read_bytes())  # noqa: S301
    streams: dict[int, int] = {}
    return [
        (event["action"], event["size"], streams.setdefault(event["stream"], len(streams)))
        for event in snapshot["device_traces"][0]
        if event["action"] != "snapshot"
    ]


def _requests(events: list[Event]) -> list[Event]:
    return [event for event in events if event[0] in {"alloc", "free_requested"}]


def _without_order_of_frees(events: list[Event]) -> list[Event]:
    ordered: list[Event] = []
    frees: list[Event] = []
    for event in events:
        if event[0] == "free_requested":
            frees.append(event)
            continue
        ordered += [*sorted(frees), event]
        frees.clear()
    return ordered + sorted(frees)


def _segments(events: list[Event]) -> list[Event]:
    return [event for event in events if event[0].startswith("segment")]


def _common(a: list[Event], b: list[Event]) -> float:
    from collections import Counter

    shared = sum((Counter(a) & Counter(b)).values())
    return shared / max(len(a), len(b), 1)


def _peaks(folder: Path, workload: str) -> tuple[int, int]:
    stats = json.loads((folder / f"{workload}.json").read_text())["marks"][-1]["stats"]
    return stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]


def compare(workload: str, a: Path, b: Path) -> Comparison:
    """Compare one workload of two folders."""
    events = [_events(folder / f"{workload}.pickle") for folder in (a, b)]
    requests = [_requests(each) for each in events]
    peaks = [_peaks(folder, workload) for folder in (a, b)]
    return Comparison(
        workload,
        (len(requests[0]), len(requests[1])),
        _without_order_of_frees(requests[0]) == _without_order_of_frees(requests[1]),
        _segments(events[0]) == _segments(events[1]),
        round(_common(*requests), 4),
        (peaks[0][0], peaks[1][0]),
        (peaks[0][1], peaks[1][1]),
    )


def _where(folder: Path, workload: str) -> Any:  # noqa: ANN401 (as record.py wrote it)
    recorded = json.loads((folder / f"{workload}.json").read_text())
    return {key: value for key, value in recorded.items() if key not in {"marks", "workload"}}


def show(rows: list[Comparison]) -> None:
    """Print one line for each workload."""
    table = Table("workload", "requests A", "B", "requests", "segments", "common")
    table.add_column("peak allocated MiB, A and B")
    table.add_column("peak reserved MiB, A and B")
    for row in rows:
        table.add_row(
            row.workload,
            *(f"{count:,}" for count in row.requests),
            "same" if row.requests_agree else "differ",
            "same" if row.segments_agree else "differ",
            f"{row.common:.4f}",
            " ".join(f"{size / MIB:,.1f}" for size in row.peak_allocated_bytes),
            " ".join(f"{size / MIB:,.0f}" for size in row.peak_reserved_bytes),
        )
    Console(width=130).print(table)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("a", type=Path, help="folder that record.py filled")
    parser.add_argument("b", type=Path, help="another")
    parser.add_argument("--write", metavar="NAME", help="keep it as benchmarks/results/NAME.json")
    options = parser.parse_args()
    both = {p.stem for p in options.a.glob("*.pickle")} & {
        p.stem for p in options.b.glob("*.pickle")
    }
    if not both:
        parser.error(f"{options.a} and {options.b} have no workload in common")
    rows = [compare(workload, options.a, options.b) for workload in sorted(both)]
    show(rows)
    if options.write:
        first = rows[0].workload
        figures = {
            "a": _where(options.a, first),
            "b": _where(options.b, first),
            "workloads": [asdict(row) for row in rows],
        }
        print(machine.write(options.write, figures, gpu="see a and b"))


if __name__ == "__main__":
    main()
