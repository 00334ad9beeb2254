"""Trainings by other people's programs, unmodified, under each allocator on a GPU.

    PYTHONPATH=benchmarks python -m gpu.others --libraries FOLDER [--write]

FOLDER has deepspeed and megatron-core with what they need; the programs are those of
others/measure.py that run as one rank on one device. gmlake comes by `gmlake run`. Every loss has
to be equal to the bit.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import ALLOCATORS
from others.measure import FIRST_RANK, cell_of, found_in

OTHERS = machine.ROOT / "benchmarks" / "others"
PROGRAMS = ("deepspeed_zero3", "megatron_gpt")
_WAYS = ("default", "expandable", "gmlake")
_LONGEST_SECONDS = 240
_ALONE = FIRST_RANK | {
    "WORLD_SIZE": "1",
    "OTHERS_COMPUTE": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "HF_HUB_OFFLINE": "1",
}


def ask(program: str, way: str, libraries: Path) -> dict[str, Any]:
    """Return the peaks and losses of a run, or `failed`."""
    started = ["-m", "gmlake", "run"] if way == "gmlake" else []
    paths = (os.environ.get("PYTHONPATH", ""), str(OTHERS.parent), str(libraries))
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if ALLOCATORS[way]:
        variables["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[way]
    print(f"{program}, {way}", flush=True)
    return machine.told_by(
        [sys.executable, *started, str(OTHERS / "peaks.py"), str(OTHERS / f"{program}.py")],
        env=os.environ | _ALONE | variables,
        seconds=_LONGEST_SECONDS,
    )


def keep(found: dict[str, dict[str, dict[str, Any]]], options: argparse.Namespace) -> None:
    """Write what there is so far."""
    every = (told for ways in found.values() for told in ways.values())
    gpu = ", ".join(sorted({told["device"] for told in every if "failed" not in told})) or "none"
    places = found_in([options.libraries], list(PROGRAMS))
    figures = {
        "versions": {name: version for name, (_, version) in places.items()},
        "programs": found,
    }
    machine.write("gpu_others", figures, path=options.output, gpu=gpu)


def main() -> int:
    """Run, print, and keep it where asked; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--libraries", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_others.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for program in PROGRAMS:
        ways = found[program] = {}
        for way in _WAYS:
            ways[way] = ask(program, way, options.libraries)
            if options.write or options.output:
                keep(found, options)
    table = Table("program", *_WAYS, title="reserved GiB, and how much of it was live")
    for program, ways in found.items():
        table.add_row(program, *map(cell_of, ways.values()))
    Console(width=140).print(table)
    every = [told for ways in found.values() for told in ways.values()]
    is_good = not any("failed" in told for told in every)
    for program, ways in found.items():
        losses = {str(told.get("losses")) for told in ways.values()}
        print(f"{program}: losses {'are the same' if len(losses) == 1 else 'differ'}")
        is_good &= len(losses) == 1
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
