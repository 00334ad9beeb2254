#!/usr/bin/env python3
"""The largest batches of trainings of programs/ by `gmlake forecast`, as gpu/ballast.py wants them.

PYTHONPATH=LIBRARIES python benchmarks/forecast/largest.py [--memory 24GiB] FILE

LIBRARIES as for compare.py. gpu/ballast.py then runs each on a GPU, and one more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Final

from gmlake.standin.forecasts import forecast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from forecast import compare

PROGRAMS: Final = Path(__file__).resolve().parent / "programs"
BATCHES: Final = {
    "gpt2": 8,
    "distilgpt2": 16,
    "opt_350m": 4,
    "pythia_410m": 4,
    "qwen3_600m": 4,
    "resnet50": 128,
    "vit_b_16": 128,
    "llama_1b_lora": 2,
}
"""The program and the smaller of the two batches that are recorded."""


def main() -> None:
    """Forecast each, and write the batches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memory", default="24GiB", help="what the device has (%(default)s)")
    parser.add_argument("file", type=Path, metavar="FILE")
    options = parser.parse_args()
    largest: dict[str, dict[str, int | None]] = {}
    for name, batch in BATCHES.items():
        began = time.monotonic()
        found = forecast([str(PROGRAMS / f"{name}.py"), "--batch", str(batch)], options.memory)
        largest[name] = {compare.WAYS[need.policy]: need.largest_batch for need in found.needs}
        runs = len(found.batch.confirmed) + 2 if found.batch else 1
        print(name, largest[name], f"{runs} runs, {time.monotonic() - began:.0f} s", flush=True)
        options.file.write_text(json.dumps(largest, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
