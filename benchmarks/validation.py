"""How far `caching` and `expandable` agree with PyTorch on recordings of its own allocators.

make validate FILES='recordings/*/*.pickle'
python benchmarks/validation.py recordings/*/*.pickle [--write NAME]

Statistics and refusals are compared where a recording has notes beside it: the .json that
benchmarks/workloads/record.py writes. A .zip stands for the recordings in it. Exit code 1:
something differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

import gmlake
import machine

sys.path.append(str(machine.ROOT / "lab"))

from validating import ValidationResult, load_notes, validate
from validating.tables import validation_tables


def unpacked(paths: list[Path], folder: Path) -> list[Path]:
    """Return the recordings, those of archives after they were written into a folder."""
    found: list[Path] = []
    for path in paths:
        if path.suffix != ".zip":
            found.append(path)
            continue
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder / path.stem)
        found += sorted((folder / path.stem).glob("*/*.gmtrace"))
    return found


def results_of(path: Path) -> list[ValidationResult]:
    """Return what each device of a recording comes to."""
    beside = path.with_suffix(".json")
    notes = load_notes(beside) if beside.exists() and beside != path else None
    return [validate(seen.trace, notes) for seen in gmlake.load(path)]


def device_of(path: Path) -> str:
    """Return what a recording was made on."""
    return str(json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["device"])


def main() -> None:
    """Validate every file, print the tables, keep the figures with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recordings", nargs="+", type=Path, help="snapshots or .gmtrace files")
    parser.add_argument("--write", metavar="NAME", help="keep it as results/NAME.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recordings = unpacked(arguments.recordings, Path(folder))
        results = [result for path in recordings for result in results_of(path)]
        devices = sorted({device_of(path) for path in recordings}) if arguments.write else []
    for table in validation_tables(results):
        Console().print(table)
    if arguments.write:
        told = {"results": [asdict(result) for result in results]}
        print(machine.write(arguments.write, told, gpu=", ".join(devices)))
    sys.exit(not all(result.is_complete for result in results))


if __name__ == "__main__":
    main()
