"""Whether the largest batches that `gmlake forecast` names fit, and those one larger.

    PYTHONPATH=benchmarks python -m gpu.ballast --memory 24GiB --largest FILE [--write]

FILE has, as JSON, the largest batch of each program of forecast/programs under each allocator.
Another process holds so much of the device that only this memory is left; then each program runs
with its largest batch, and with one more, in a forked child of its own.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
from gmlake.units import parse_size
from gpu import forecasts, forked

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = machine.ROOT / "benchmarks" / "forecast" / "programs"
LONGEST_SECONDS = 60.0

BALLAST = """
import sys, torch
wanted, held = int(sys.argv[1]), []
torch.cuda.init()
torch.empty(1, device="cuda")
while (over := torch.cuda.mem_get_info()[0] - wanted) >= 2 << 20:
    size = max(min(over, 4 << 30) - (2 << 20), 2 << 20)
    held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
print(torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


@contextmanager
def ballast(left_bytes: int) -> Iterator[int]:
    """Hold all of the device but so much; yield what is really left, in bytes."""
    process = subprocess.Popen(  # noqa: S603 (the lines above)
        [sys.executable, "-c", BALLAST, str(left_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Run each program with its largest batch, and with one more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memory", default="24GiB", help="what is left of the device")
    parser.add_argument("--largest", type=Path, required=True, help="the batches, as JSON")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    largest: dict[str, dict[str, int]] = json.loads(options.largest.read_text())
    forecasts.import_everything()
    rows: list[dict[str, Any]] = []
    with ballast(parse_size(options.memory)) as left, tempfile.TemporaryDirectory() as cache:
        for name, batches in largest.items():
            for allocator, batch in batches.items():
                for tried in (batch, batch + 1):
                    work = partial(
                        forecasts.measure,
                        *(PROGRAMS / f"{name}.py", ["--batch", str(tried)], allocator),
                        *(Path(cache), None),
                    )
                    told = forked.in_child(work, LONGEST_SECONDS)
                    row = {
                        "program": name,
                        "allocator": allocator,
                        "batch": tried,
                        "is_forecast_to_fit": tried == batch,
                        "failed": told.get("failed", ""),
                        "seconds": told["seconds"],
                    }
                    rows.append(row)
                    print(name, allocator, tried, row["failed"][:60] or "fits", row["seconds"])
                    figures = {"left_bytes": left, "versions": forked.versions(), "rows": rows}
                    if options.output:
                        options.output.write_text(json.dumps(figures))
    if options.write:
        device = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
        print(machine.write("forecast_largest", figures, gpu=device.stdout.strip()))


if __name__ == "__main__":
    main()
