"""Reserved memory of each policy on recorded traces, and what `stitch` wastes, by cause.

python benchmarks/utilization.py TRACE... [--write [NAME]]

The causes are read from the regions `stitch` holds just after its last growth, when reserved
memory is at its peak:

  slab     free pieces of 2 MiB slabs, which serve requests up to 1 MiB
  leftover ends and starts of chunks that a block lies beside
  inside   free ranges in the middle of a chunk
  whole    chunks that are wholly free
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gmlake import _core

if TYPE_CHECKING:
    from gmlake.trace.layout import Records

CHUNK = 2 << 20
MIB = 1 << 20


def _run_to_last_growth(requests: Records, id_count: int) -> int:
    """Return how many requests it takes until `stitch` has reserved all it ever will."""
    needed, slice_events = 0, 64
    with gmlake.Lake("sim", "stitch", capacity="1TiB") as lake:
        replay = _core.Replay(lake, id_count)
        reserved = 0
        for first in range(0, len(requests), slice_events):
            totals = replay.run(requests[first : first + slice_events])
            if totals["peak_reserved_bytes"] > reserved:
                reserved, needed = totals["peak_reserved_bytes"], first
    with gmlake.Lake("sim", "stitch", capacity="1TiB") as lake:
        replay = _core.Replay(lake, id_count)
        replay.run(requests[:needed])
        while lake.stats()["reserved_bytes"] < reserved:
            replay.run(requests[needed : needed + 1])
            needed += 1
    return needed


def _split(address: int, size: int) -> dict[str, int]:
    """Divide a free range of the home space, whose chunks lie at multiples of their size."""
    first, last = -(-address // CHUNK) * CHUNK, (address + size) // CHUNK * CHUNK
    if first > last:
        return {"inside": size}
    return {"leftover": size - (last - first), "whole": last - first}


def waste_by_cause(trace: gmlake.Trace) -> dict[str, int]:
    """Return the bytes that are reserved and not live at the peak of reserved memory."""
    requests = trace.replay_requests()
    causes = {"slab": 0, "leftover": 0, "inside": 0, "whole": 0}
    with gmlake.Lake("sim", "stitch", capacity="1TiB") as lake:
        _core.Replay(lake, trace.id_count).run(
            requests[: _run_to_last_growth(requests, trace.id_count)]
        )
        for region in lake.regions():
            if region["is_view"] and not region["is_small"]:
                continue
            for address, size, _requested, is_used in region["ranges"]:
                if is_used:
                    continue
                parts = {"slab": size} if region["is_small"] else _split(address, size)
                for cause, octets in parts.items():
                    causes[cause] += octets
    return causes


def main() -> None:
    """Replay each trace, print two tables, and keep the figures with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument(
        "--write", nargs="?", const="utilization", metavar="NAME", help="keep results/NAME.json"
    )
    arguments = parser.parse_args()
    names = _core.policies()
    shares = Table("live / reserved at the peak", "live GiB", *names)
    wastes = Table("stitch: MiB unused at the peak", "slab", "leftover", "inside", "whole")
    kept: list[dict[str, Any]] = []
    for path in arguments.traces:
        trace = gmlake.load_trace(path)
        report = gmlake.replay(trace, "all")
        causes = waste_by_cause(trace)
        kept += [asdict(result) for result in report.results]
        kept[-1]["waste_bytes"] = causes
        live = report.results[0].peak_live_bytes
        shares.add_row(
            trace.name,
            f"{live / (1 << 30):.2f}",
            *(f"{result.utilization:.4f}" for result in report.results),
        )
        wastes.add_row(trace.name, *(f"{octets / MIB:.2f}" for octets in causes.values()))
    console = Console()
    console.print(f"policies: {', '.join(names)}", shares, wastes)
    if arguments.write:
        print(machine.write(arguments.write, {"results": kept}))


if __name__ == "__main__":
    main()
