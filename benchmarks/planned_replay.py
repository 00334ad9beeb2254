"""What the policy `plan` takes for whole training steps, beside `stitch`, on a simulated device.

    python benchmarks/planned_replay.py [--write] [TRACE...]

The shipped traces hold one planned step at most, so their last step is repeated. TRACE: others,
with six steps alike or more, as `examples/record_without_gpu.py --steps 8` records them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import gmlake
import machine
from workloads.repeated import with_last_step_repeated

REPEATS = 6
SHIPPED = ("1.3b-checkpoint-mixed", "gpt2-xl")


def measure(trace: gmlake.Trace) -> dict[str, Any]:
    """Replay under both policies; the figures of `plan` begin with the second planned step."""
    stitch, planned = gmlake.replay(trace, "stitch,plan").results
    plan = planned.plan or {}
    requests = plan.get("requests", 0)
    return {
        "trace": trace.name,
        "peak_live_bytes": stitch.peak_live_bytes,
        "stitch_utilization": stitch.peak_live_bytes / stitch.peak_reserved_bytes,
        "plan_utilization": planned.peak_live_bytes / planned.peak_reserved_bytes,
        "left_part": plan.get("left", 0) / requests if requests else 0.0,
        **{f"settled_{name}": value for name, value in (plan.get("settled") or {}).items()},
    }


def main() -> None:
    """Measure, print, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--write", action="store_true", help="keep as results/planned_replay.json")
    options = parser.parse_args()
    folder = machine.ROOT / "examples" / "traces"
    traces = [
        with_last_step_repeated(gmlake.load_trace(folder / f"{name}.gmtrace"), REPEATS)
        for name in SHIPPED
    ]
    rows = [measure(trace) for trace in [*traces, *map(gmlake.load_trace, options.traces)]]
    table = Table("trace", "live GiB", "stitch", "plan", "settled", "hit rate", "left", "calls")
    for row in rows:
        table.add_row(
            row["trace"],
            f"{row['peak_live_bytes'] / 2**30:.1f}",
            f"{row['stitch_utilization']:.4f}",
            f"{row['plan_utilization']:.4f}",
            f"{row.get('settled_utilization', 0):.4f}",
            f"{row.get('settled_hit_rate', 0):.4f}",
            f"{row['left_part']:.0%}",
            str(row.get("settled_driver_calls", "")),
        )
    Console().print(table)
    if options.write:
        print(machine.write("planned_replay", {"repeats": REPEATS, "traces": rows}))


if __name__ == "__main__":
    main()
