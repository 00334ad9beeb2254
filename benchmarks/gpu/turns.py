"""Whether gmlake costs time: steps that take turns with PyTorch's allocator in one process.

    PYTHONPATH=benchmarks python -m gpu.turns [--write]
    PYTHONPATH=benchmarks python -m gpu.turns --programs llama-1b --seconds 200 --output a.json
    PYTHONPATH=benchmarks python -m gpu.turns --join a.json b.json --write

Processes of one program differ by more than allocators do, so each comparison is one process
(gpu.taking_turns, which says what is measured) in which both sides take the same steps, no two of
them alike. Shown is the median of the ratios of each pair, with the interval that holds it at 95 %
(bootstrap), for this process. `first` is the ratio of the first step of a pair to the second one,
whichever side it is: what the order does. It is drawn, and taken out of the ratios (gpu.ratios).

--against says what is compared with. `--sides again` compares PyTorch's default allocator with
itself, which shows what the way of measuring leaves to chance.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

import machine
from gpu.ranks import run_ranks
from gpu.ratios import compared_pairs, compared_turns
from gpu.settings import TURNS
from gpu.slots import deal, slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu.slots import Slot

_SIDES = ("gmlake", "expandable", "again")
_TIMES = ("wall", "launch", "device")
_TINY_WARMING = 2
_OF_EACH_PAIR = ("first", "steps", "driver")
"""What a process tells of each pair; a result has what summary() makes of it."""


def ask(names: tuple[str, str, str], place: Slot, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the process of a comparison told, with its ratios, or `failed`.

    names: of the program and of its two sides.
    """
    program, side, base = names
    words = [program, side, base, "--pairs", str(options.pairs), "--seconds", str(options.seconds)]
    if options.tiny:
        words += ["--tiny", "--warming", str(_TINY_WARMING), "--profiled", "1"]
    (told,) = run_ranks(
        ["gpu.taking_turns", *words],
        1,
        cores=place.cores if options.gpus > 1 else (),
        **(place.environment() if options.gpus > 1 else {}),
        CUBLAS_WORKSPACE_CONFIG=":4096:8",
        HF_HUB_OFFLINE="1",
        PYTHONWARNINGS="ignore",
        TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT="0",  # no plan of a shape is thrown away
    )
    named = {"program": program, "side": side, "base": base}
    if "failed" in told:
        return {**named, **told}
    kept = {name: each for name, each in told.items() if name not in _OF_EACH_PAIR}
    return {**named, **summary(side, base, told), **kept}


def summary(side: str, base: str, told: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios of a comparison, and what its driver calls took a step."""
    steps, kernels, driver = told["steps"], told["kernels"], told["driver"]
    mine, other = steps[side], steps[base]
    is_mine_first = [name == side for name in told["first"]]
    ratios = {name: compared_turns(mine[name], other[name], is_mine_first) for name in _TIMES}
    if all(kernels[name] and min(kernels[name]) > 0 for name in (side, base)):
        ratios["kernels"] = compared_pairs(kernels[side], kernels[base])
    pairs = list(zip(mine["wall"], other["wall"], is_mine_first, strict=True))
    ratios["first"] = compared_pairs(
        [one if is_first else two for one, two, is_first in pairs],
        [two if is_first else one for one, two, is_first in pairs],
    )
    return {
        "ratios": ratios,
        "median_ms": {
            name: {time: round(statistics.median(steps[name][time]) / 1e6, 3) for time in _TIMES}
            for name in (side, base)
        },
        "driver_per_step": {
            name: {
                "ms": round(statistics.fmean(driver[name]["ns"]) / 1e6, 3),
                "calls": round(statistics.fmean(driver[name]["calls"]), 2),
            }
            for name in (side, base)
        },
    }


def _cell(ratio: dict[str, float] | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _clock_cell(samples: Sequence[dict[str, Any]]) -> str:
    """Return the least and the most of the clock, and the reasons other than 0, each once."""
    if not samples:
        return "-"
    clocks = [sample["sm_mhz"] for sample in samples]
    reasons = {int(sample["reasons"], 16) for sample in samples} - {0}
    return ", ".join([f"{min(clocks)}-{max(clocks)}", *(f"{each:#x}" for each in sorted(reasons))])


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print a row for each comparison."""
    names = ("program", "sides", "pairs", "wall", "launch", "device", "kernels", "first")
    right = ("ms", "driver ms", "calls", "SM MHz", "losses")
    table = Table(*names, *(Column(name, justify="right") for name in right))
    for told in found:
        side, base = told["side"], told["base"]
        if "failed" in told:
            table.add_row(told["program"], f"{side}/{base}", told["failed"])
            continue
        driver = told["driver_per_step"]
        table.add_row(
            *(told["program"], f"{side}/{base}", f"{told['pairs']}"),
            *(_cell(told["ratios"].get(name)) for name in names[3:]),
            "/".join(f"{told['median_ms'][name]['wall']:.1f}" for name in (side, base)),
            f"{driver[side]['ms']:.2f}" if side == "gmlake" else "-",
            "/".join(f"{driver[name]['calls']:g}" for name in (side, base)),
            _clock_cell(told["clock"]),
            "same" if told["has_same_losses"] else "DIFFER",
        )
    Console(width=max(Console().width, 220)).print(table)
    for told in found:
        if told.get("pairs", 0) < told.get("wanted_pairs", 0):
            print(
                f"{told['program']}, {told['side']}/{told['base']}: {told['pairs']} of "
                f"{told['wanted_pairs']} pairs, since the time was spent"
            )


def joined(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the figures of several files as one, each comparison with the run that made it.

    Of a comparison that several files have, the last one counts.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in paths:
        figures = json.loads(path.read_text(encoding="utf-8"))
        for told in figures["comparisons"]:
            found[told["program"], told["side"], told["base"]] = {"run": figures["run"], **told}
    return {"comparisons": list(found.values())}


def main() -> int:
    """Measure, print, and keep it where asked; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--programs", nargs="+", choices=TURNS, default=list(TURNS))
    parser.add_argument("--sides", nargs="+", choices=_SIDES, default=["gmlake", "expandable"])
    parser.add_argument(
        "--against", nargs="+", choices=("default", "expandable"), default=["default"]
    )
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument(
        "--seconds", type=float, default=0, help="for each process, which then ends with fewer"
    )
    parser.add_argument("--gpus", type=int, default=1, help="of the host, to be used at once")
    parser.add_argument("--tiny", action="store_true", help="sizes for the stand-in")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="measure nothing")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_turns.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs takes at least 1")
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        os.environ.pop(name, None)
    figures: dict[str, Any] = {"comparisons": []}
    if options.join:
        figures = joined(options.join)
    else:
        wanted = [
            (program, side, base)
            for program in options.programs
            for side in options.sides
            for base in options.against
            if side != base
        ]
        found = deal(wanted, slots(options.gpus), lambda names, place: ask(names, place, options))
        figures = {
            "size": "tiny" if options.tiny else "full",
            "gpus": options.gpus,
            "comparisons": found,
        }
    found = figures["comparisons"]
    show(found)
    if options.write or options.output:
        every = {f"{number}": told for number, told in enumerate(found)}
        gpu = machine.devices_of(every)
        print(machine.write("gpu_turns", figures, path=options.output, gpu=gpu))
    return int(not all(told.get("has_same_losses") for told in found) or not found)


if __name__ == "__main__":
    sys.exit(main())
