#!/usr/bin/env python3
"""What `gmlake forecast` says of the trainings in programs/, and what they took of a GPU.

PYTHONPATH=LIBRARIES python benchmarks/forecast/compare.py [--write] [PROGRAM ...]

Runs on the stand-in GPU, in a Python with the packages that the measured results name: another
transformers asks for other memory, so other versions are refused. LIBRARIES is a folder that has
those which the Python lacks. gpu/forecasts.py made the measured results.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from gmlake.standin.devices import DEFAULT
from gmlake.standin.forecasts import Forecast, forecast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import machine
from forecast.names import named

MEASURED: Final = ("forecast_programs_h100", "forecast_compiled_h100")
WAYS: Final = {"caching": "default", "expandable": "expandable", "stitch": "gmlake"}
"""By the name of a policy: what gpu/forecasts.py calls it."""

Figures = dict[str, Any]


def measured() -> tuple[dict[str, Figures], dict[str, str], str]:
    """Return what each program took, with which packages, and the device and its driver."""
    files = [json.loads((machine.RESULTS / f"{name}.json").read_text()) for name in MEASURED]
    programs = {name: told for file in files for name, told in file["programs"].items()}
    device = files[0]["device"]
    return programs, files[0]["versions"], f"{device['device']}, driver {device['driver']}"


def other_versions(wanted: dict[str, str]) -> list[str]:
    """Return the packages of this Python that are not those that were measured."""
    found = []
    for name, release in wanted.items():
        try:
            here = version(name)
        except PackageNotFoundError:
            here = "none"
        if here.partition("+")[0] != release:
            found.append(f"{name} {here}, measured: {release}")
    return found


def beside(foreseen: int, took: int) -> Figures:
    """Return a foreseen figure, the measured one, and by which share of that it is off."""
    return {
        "foreseen_bytes": foreseen,
        "measured_bytes": took,
        "error": round(foreseen / took - 1, 5),
    }


def compare(found: Forecast, took: Figures) -> Figures:
    """Return each figure of a forecast beside the measured one.

    live: the peak of what is allocated. By way, reserved: the peak of what PyTorch's allocator has
    taken. in_use: the device's peak, with what CUDA has.
    """
    told: Figures = {
        "steps": found.steps,
        "live": beside(found.peak_live_bytes, took["expandable"]["peak_allocated_bytes"]),
    }
    for need in found.needs:
        way = WAYS[need.policy]
        in_use = need.reserved_bytes + found.beyond.total_bytes
        told[way] = {
            "reserved": beside(need.reserved_bytes, took[way]["peak_reserved_bytes"]),
            "in_use": beside(in_use, took[way]["in_use_peak_bytes"]),
        }
    return told


def show(programs: dict[str, Figures]) -> None:
    """Print a row for each program: the errors in percent, live, reserved and of the device."""
    rows = []
    for name, told in programs.items():
        row: Figures = {"program": name, "live": 100 * told["live"]["error"]}
        for way in WAYS.values():
            row[way] = 100 * told[way]["reserved"]["error"]
            row[f"{way}, device"] = 100 * told[way]["in_use"]["error"]
        rows.append(row)
    machine.show("errors in percent", rows)


def main() -> int:
    """Forecast each program, print the errors, and keep them with --write."""
    took, wanted, measured_on = measured()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(took)}")
    parser.add_argument("--write", action="store_true", help="keep it as forecast_errors.json")
    options = parser.parse_args()
    if others := other_versions(wanted):
        sys.stderr.write(f"compare.py: {'; '.join(others)}\n")
        return 2
    programs: dict[str, Figures] = {}
    for name in options.programs or sorted(took):
        began = time.monotonic()
        told = compare(forecast(named()[name], DEFAULT), took[name])
        programs[name] = told | {"seconds": round(time.monotonic() - began, 1)}
        print(f"{name}: {programs[name]['seconds']} s", flush=True)
    show(programs)
    if options.write:
        figures = {"versions": wanted, "measured": MEASURED, "device": measured_on}
        figures["programs"] = programs
        print(machine.write("forecast_errors", figures, gpu="none: the stand-in GPU"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
