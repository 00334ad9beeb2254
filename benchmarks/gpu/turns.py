"""Whether gmlake costs time: steps that take turns with PyTorch's allocator in one process.

    PYTHONPATH=benchmarks python -m gpu.turns [--write]
    PYTHONPATH=benchmarks python -m gpu.turns --programs llama-1b --seconds 200 --output a.json
    PYTHONPATH=benchmarks python -m gpu.turns --join a.json b.json --write

Processes of one program differ by more than allocators do, so each comparison is one process
(gpu.taking_turns, which says what is measured) in which both sides take the same steps, no two of
them alike. Shown is the median of the ratios of each pair, with the interval that holds it at 95 %
(bootstrap), for this process. `first` is the ratio of the first step of a pair to the second one,
whichever side it is: what the order does. It is drawn, and taken out of the ratios.

--against says what is compared with. `--sides again` compares PyTorch's default allocator with
itself, which shows what the way of measuring leaves to chance.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import machine
from gpu.processes import deal, run_ranks, slots
from gpu.settings import TURNS, environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu.processes import Slot

_SIDES = ("gmlake", "expandable", "again")
_TIMES = ("wall", "launch", "device")
_TINY_WARMING = 2
_DRAWS = 2000
_OF_EACH_PAIR = ("first", "steps", "driver")
"""What a process tells of each pair; a result has what summary() makes of it."""


# ---- ratios --------------------------------------------------------------------------------------


def compared(ratios: Sequence[float]) -> dict[str, float]:
    """Return the median, and the interval that holds it at 95 % (bootstrap)."""
    chance = np.random.default_rng(0)
    drawn = np.median(chance.choice(ratios, (_DRAWS, len(ratios))), axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return {"ratio": float(np.median(ratios)), "low": float(low), "high": float(high)}


def compared_pairs(mine: Sequence[float], base: Sequence[float]) -> dict[str, float]:
    """Return compared() of the ratios of `mine` to `base`, pair by pair."""
    return compared([one / other for one, other in zip(mine, base, strict=True)])


def compared_turns(
    mine: Sequence[float], base: Sequence[float], is_mine_first: Sequence[bool]
) -> dict[str, float]:
    """Return compared_pairs() without what the order of a pair does.

    Whoever comes first pays for both, for example for the plan of a product of a new shape. So the
    median is taken of each order by itself, and the ratio is the geometric mean of the two; where
    there is one order only, its median.
    """
    ratios = np.asarray(mine, float) / np.asarray(base, float)
    is_first = np.asarray(is_mine_first, bool)
    halves = [half for half in (ratios[is_first], ratios[~is_first]) if len(half)]
    chance = np.random.default_rng(0)
    drawn = [np.median(chance.choice(half, (_DRAWS, len(half))), axis=1) for half in halves]
    low, high = np.percentile(np.exp(np.mean(np.log(drawn), axis=0)), (2.5, 97.5))
    ratio = np.exp(np.mean([np.log(np.median(half)) for half in halves]))
    return {"ratio": float(ratio), "low": float(low), "high": float(high)}


# ---- processes -----------------------------------------------------------------------------------


def ask(names: tuple[str, str, str], place: Slot, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the process of a comparison told, with its ratios, or `failed`.

    names: of the program and of its two sides.
    """
    program, side, base = names
    words = [program, side, base, "--pairs", str(options.pairs), "--seconds", str(options.seconds)]
    if options.tiny:
        words += ["--tiny", "--warming", str(_TINY_WARMING)]
    (told,) = run_ranks(
        ["gpu.taking_turns", *words],
        1,
        cores=place.cores if options.gpus > 1 else (),
        variables=environment("default")
        | (place.environment() if options.gpus > 1 else {})
        | {
            "PYTHONWARNINGS": "ignore",
            "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT": "0",  # no plan of a shape is thrown away
        },
    )
    named = {"program": program, "side": side, "base": base}
    if "failed" in told:
        return {**named, **told}
    kept = {name: each for name, each in told.items() if name not in _OF_EACH_PAIR}
    return {**named, **summary(side, base, told), **kept}


def summary(side: str, base: str, told: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios of a comparison, and what its driver calls took a step."""
    steps, driver = told["steps"], told["driver"]
    mine, other = steps[side], steps[base]
    is_mine_first = [name == side for name in told["first"]]
    ratios = {name: compared_turns(mine[name], other[name], is_mine_first) for name in _TIMES}
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


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print a row for each comparison."""
    names = ("program", "side", "base", "pairs", "wanted_pairs", "has_same_losses", "failed")
    rows = []
    for told in found:
        row = {name: told[name] for name in names if name in told}
        for name, each in told.get("ratios", {}).items():
            row[name] = f"{each['ratio']:.3f} [{each['low']:.3f}, {each['high']:.3f}]"
        rows.append(row)
    machine.show("in turns", rows)


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
        gpu = machine.devices_of(found)
        print(machine.write("gpu_turns", figures, path=options.output, gpu=gpu))
    return int(not all(told.get("has_same_losses") for told in found) or not found)


if __name__ == "__main__":
    sys.exit(main())
