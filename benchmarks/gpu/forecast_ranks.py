"""What each rank of forecast/fsdp2.py takes on its GPU, under one allocator; torchrun starts it.

    PYTHONPATH=benchmarks torchrun --nproc-per-node 2 -m gpu.forecast_ranks ALLOCATOR FOLDER
    PYTHONPATH=benchmarks python -m gpu.forecast_ranks --write FOLDER

ALLOCATOR is default, expandable or gmlake. Each rank writes FOLDER/ALLOCATOR-RANK.json, in bytes;
the second command keeps them as a result.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch

import machine
from gpu import forecasts, forked
from gpu.settings import ALLOCATORS

PROGRAM = machine.ROOT / "benchmarks" / "forecast" / "fsdp2.py"


def keep(folder: Path) -> None:
    """Write what all ranks took as one result."""
    ranks: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*-*.json")):
        ranks.setdefault(path.stem.rpartition("-")[0], []).append(json.loads(path.read_text()))
    figures = {"program": PROGRAM.name, "versions": forked.versions(), "ranks": ranks}
    print(machine.write("forecast_ranks", figures, gpu=f"2 x {torch.cuda.get_device_name()}"))


def main() -> None:
    """Run the program in this rank, or keep what all ranks took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("allocator", nargs="?", choices=list(ALLOCATORS))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="keep what is there")
    options = parser.parse_args()
    if options.write:
        keep(options.write)
        return
    if not options.folder:
        parser.error("ALLOCATOR and FOLDER, or --write FOLDER")
    allocator, folder = options.allocator, options.folder
    rank = int(os.environ["RANK"])
    # Before CUDA starts, at which PyTorch reads it.
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[allocator]
    cache = folder / f"cache-{rank}"
    cache.mkdir(parents=True, exist_ok=True)
    total = torch.cuda.get_device_properties(int(os.environ["LOCAL_RANK"])).total_memory
    told = forecasts.measure(PROGRAM, [], allocator, cache, total)
    (folder / f"{allocator}-{rank}.json").write_text(json.dumps({"rank": rank, **told}))


if __name__ == "__main__":
    main()
