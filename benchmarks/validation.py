"""How far `caching` and `expandable` agree with PyTorch on recordings of its own allocators.

python benchmarks/validation.py recordings/*/*.pickle [--write NAME]

Beside each recording lies the .json that benchmarks/workloads/record.py wrote.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

import gmlake
import machine
from gmlake.snapshots.whole import of_one_trace


def device_of(path: Path) -> str:
    """Return what a recording was made on."""
    return str(json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["device"])


def main() -> None:
    """Validate every file, print the tables, keep the figures with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recordings", nargs="+", type=Path, help="what record.py wrote")
    parser.add_argument("--write", metavar="NAME", help="keep it as results/NAME.json")
    arguments = parser.parse_args()
    results = []
    for path in arguments.recordings:
        notes = gmlake.load_notes(path.with_suffix(".json"))
        report = gmlake.validate(of_one_trace(gmlake.load(path).devices[0].trace), notes)
        results += report.to_dict()["results"]
        Console().print(report)
    if arguments.write:
        devices = sorted({device_of(path) for path in arguments.recordings})
        print(machine.write(arguments.write, {"results": results}, gpu=", ".join(devices)))


if __name__ == "__main__":
    main()
