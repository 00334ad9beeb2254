"""How fast each allocator trains by the length of its sequences, and where it ends.

    PYTHONPATH=benchmarks python -m gpu.frontier [--models dense moe] [--gpus 4] [--write]
    PYTHONPATH=benchmarks python -m gpu.frontier --join a.json b.json --write

Each run is gpu.lengthening in processes of its own, which go on until memory ends. Every other
round goes through the allocators in the opposite order. With --gpus several runs go on at once,
each on GPUs of its own with its share of the cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import machine
from gpu.processes import deal, run_ranks, slots
from gpu.settings import ALLOCATORS, FRONTIERS, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpu.processes import Slot

_RANKS = {"fsdp2": 2}
_MULTIPLE = 64
_MOST = 1 << 17

# Tokens of the shortest sequence, and those from which on steps are small: there the first ends.
_BOUNDS = {"dense": (12288, 26112), "moe": (6144, 12800), "fsdp2": (8192, 17408)}
_RATIOS = (1.5, 1.06)
_TINY_LENGTHS = (64, 128)

# So that an H100 and an H200 can be compared: an H100 has hardly more.
_LEFT_BYTES = 76 << 30


@dataclass(frozen=True)
class Run:
    """One model under one allocator, for the `number`th time; the first is 0."""

    model: str
    allocator: str
    number: int


def lengths(shortest: int, fine: int) -> list[int]:
    """Return longer and longer sequences, more than a device holds."""
    every = [float(shortest)]
    while every[-1] < _MOST:
        every.append(every[-1] * _RATIOS[every[-1] >= fine])
        if every[-2] < fine < every[-1]:
            every[-1] = fine
    return [_MULTIPLE * round(each / _MULTIPLE) for each in every]


def rounds_of(model: str, allocators: Sequence[str], count: int) -> list[Run]:
    """Return the runs of a model in the order in which they go."""
    return [
        Run(model, allocator, number)
        for number in range(count)
        for allocator in (allocators if number % 2 == 0 else reversed(allocators))
    ]


def of_ranks(files: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one entry for each length: the sum of the tokens, the most of the peaks.

    files: the lines of each rank. A length that one rank was refused is refused.
    """
    every: list[dict[str, Any]] = []
    for entries in zip(*files, strict=False):
        if any("refused" in entry for entry in entries):
            break
        one = dict(entries[0])
        one["tokens_per_second"] = round(sum(each["tokens_per_second"] for each in entries), 2)
        for name in ("peak_allocated_bytes", "peak_reserved_bytes", "retries"):
            one[name] = max(each[name] for each in entries)
        one["loss"] = [each["loss"] for each in entries]
        every.append(one)
    next_ones = [lines[len(every)] for lines in files if len(lines) > len(every)]
    return every + [entry for entry in next_ones if "refused" in entry][:1]


def ask(run: Run, place: Slot, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a run told."""
    usual = _TINY_LENGTHS if options.tiny else lengths(*_BOUNDS[run.model])
    words = ["gpu.lengthening", run.model, "--allocator", run.allocator, "--backend"]
    words += [options.backend, *(["--tiny"] if options.tiny else [])]
    words += ["--left", str(0 if options.tiny else options.left << 30)]
    words += ["--lengths", *map(str, options.lengths or usual)]
    variables = environment(run.allocator)
    if options.gpus > 1:
        variables |= place.environment()
    count = 1 if options.backend == "fake" else _RANKS.get(run.model, 1)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lengths"
        told = run_ranks(
            [*words, "--output", str(output)],
            count,
            cores=place.cores if options.gpus > 1 else (),
            variables=variables,
        )
        files = [
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for path in sorted(Path(folder).glob("lengths.*"))
        ]
    found = of_ranks([lines[1:] for lines in files]) if len(files) == count else []
    named = {"model": run.model, "allocator": run.allocator, "round": run.number}
    is_ended = bool(found) and "refused" in found[-1]
    failed = next((each["failed"] for each in told if "failed" in each), None)
    if not found or (failed and not is_ended):
        outcome = {**named, "failed": failed or "no length was told"}
    else:
        outcome = {**named, **files[0][0], "lengths": found}
    return outcome


def measure(
    options: argparse.Namespace, keep: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Run everything; keep() gets the figures after each run, in case a later one hangs."""
    figures: dict[str, Any] = {
        "size": "tiny" if options.tiny else "full",
        "gpus": options.gpus,
        "left_bytes": 0 if options.tiny else options.left << 30,
        "runs": [],
    }
    found: dict[Run, dict[str, Any]] = {}
    guard = Lock()

    def work(run: Run, place: Slot) -> None:
        began = time.monotonic()
        told = ask(run, place, options)
        took = f"{time.monotonic() - began:.0f} s"
        with guard:
            found[run] = told
            figures["runs"] = [found[job] for job in sorted(found, key=order.index)]
            keep(figures)
            print(f"{run.model}, {run.allocator}, round {run.number}: {took}", flush=True)

    order = [
        run
        for model in options.models
        for run in rounds_of(model, options.allocators, options.rounds)
    ]
    for model in options.models:
        places = slots(options.gpus, _RANKS.get(model, 1))
        deal([run for run in order if run.model == model], places, work)
    return figures


def medians(runs: Iterable[dict[str, Any]]) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Return, by allocator and length, tokens a second: least, median, most of the rounds.

    A length counts only where every round of the allocator came through it.
    """
    found: dict[str, dict[int, list[float]]] = {}
    rounds: dict[str, int] = {}
    for run in runs:
        if "failed" in run:
            continue
        rounds[run["allocator"]] = rounds.get(run["allocator"], 0) + 1
        lengths_of = found.setdefault(run["allocator"], {})
        for told in run["lengths"]:
            if "refused" not in told:
                lengths_of.setdefault(told["longest"], []).append(told["tokens_per_second"])
    return {
        allocator: {
            longest: (min(speeds), statistics.median(speeds), max(speeds))
            for longest, speeds in sorted(by_length.items())
            if len(speeds) == rounds[allocator]
        }
        for allocator, by_length in found.items()
    }


def differing(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the models and lengths whose losses are not the same in every run."""
    losses: dict[tuple[str, int], set[str]] = {}
    for run in runs:
        for told in run.get("lengths", []):
            if "loss" in told:
                key = (run["model"], told["longest"])
                losses.setdefault(key, set()).add(json.dumps(told["loss"]))
    return [f"{model} {longest}" for (model, longest), every in losses.items() if len(every) > 1]


def show(runs: Sequence[dict[str, Any]]) -> None:
    """Print tokens a second of each model by length, as medians."""
    for model in dict.fromkeys(run["model"] for run in runs):
        rows: dict[int, dict[str, Any]] = {}
        for allocator, by_length in medians(run for run in runs if run["model"] == model).items():
            for longest, (_, middle, _) in by_length.items():
                rows.setdefault(longest, {"longest": longest})[allocator] = middle
        machine.show(f"{model}: tokens a second, medians", (rows[each] for each in sorted(rows)))
    for run in runs:
        if "failed" in run:
            print(f"{run['model']}, {run['allocator']}, round {run['round']}: {run['failed']}")


def joined(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the runs of several files, each with what made it."""
    every = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    runs = [{"run": figures["run"], **told} for figures in every for told in figures["runs"]]
    return {"size": every[0]["size"], "left_bytes": every[0]["left_bytes"], "runs": runs}


def main() -> int:
    """Measure, print, and keep it where asked; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", choices=FRONTIERS, default=list(FRONTIERS))
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=list(ALLOCATORS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", help="instead of those of the model")
    parser.add_argument(
        "--left", type=int, default=_LEFT_BYTES >> 30, help="GiB of each device to leave free (76)"
    )
    parser.add_argument("--gpus", type=int, default=1, help="of the host, to be used at once")
    parser.add_argument("--backend", default="nccl", help="of fsdp2: nccl, gloo, fake")
    parser.add_argument("--tiny", action="store_true", help="sizes for the stand-in")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="measure nothing")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_frontier.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    options = parser.parse_args()

    def keep(figures: dict[str, Any]) -> Path | None:
        if not (options.write or options.output):
            return None
        gpu = machine.devices_of(figures["runs"])
        return machine.write("gpu_frontier", figures, path=options.output, gpu=gpu)

    figures = joined(options.join) if options.join else measure(options, keep)
    runs = figures["runs"]
    show(runs)
    unequal = differing(runs)
    print(f"losses differ: {', '.join(unequal)}" if unequal else "losses are the same")
    if kept := keep(figures):
        print(kept)
    return int(bool(unequal) or any("failed" in run for run in runs) or not runs)


if __name__ == "__main__":
    sys.exit(main())
