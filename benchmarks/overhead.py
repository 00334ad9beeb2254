"""ns per torch.empty/del pair: PyTorch's own allocator against gmlake's modes.

.venv-standin/bin/python benchmarks/overhead.py [--rounds 5] [--output overhead.json]
python benchmarks/overhead.py --gpu --output overhead_h100.json

Without --gpu it runs on the stand-in GPU.

Each figure is the median over processes, which take turns, of a median over batches of pairs. A
steady pair makes no driver call, so what is measured is host code alone.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = {
    "default": "PyTorch's own allocator",
    "native": "gmlake",
    "expandable": "PyTorch's own, expandable segments",
    "on_oom_lines": "gmlake, on_oom with lines",
}
_NOWHERE = Path(tempfile.gettempdir()) / "never_written.pickle"  # memory does not run out
MIB = 1 << 20
SIZES = {"512 B": 512, "1 MiB": MIB, "20 MiB": 20 * MIB}
PAIRS = 10_000
BATCHES = 21


def same_size(size_bytes: int) -> Callable[[], None]:
    """Return a batch of pairs of one size."""
    import torch

    empty, kind = torch.empty, torch.uint8

    def batch() -> None:
        for _ in range(PAIRS):
            tensor = empty(size_bytes, dtype=kind, device="cuda")
            del tensor

    return batch


def measure(way: str) -> dict[str, float]:
    """Return ns per pair in this process, by scenario; the first batches warm up."""
    import gmlake

    if way not in ("default", "expandable"):
        gmlake.enable("stitch", on_oom=_NOWHERE if way == "on_oom_lines" else None)
    scenarios = {name: same_size(size_bytes) for name, size_bytes in SIZES.items()}
    found = {}
    gc.disable()
    for name, batch in scenarios.items():
        times = []
        for _ in range(BATCHES + 3):
            start = time.thread_time_ns()  # other programs on the machine do not count
            batch()
            times.append((time.thread_time_ns() - start) / PAIRS)
        found[name] = statistics.median(times[3:])
    return found


def measure_elsewhere(way: str, *, has_gpu: bool) -> dict[str, float]:
    """Return the same from a process of its own, on the stand-in where there is no GPU."""
    launcher = () if has_gpu else ("-m", "tests.standin", "--capacity", "80GiB")
    command = (sys.executable, *launcher, __file__, "--way", way)
    variables = {name: text for name, text in os.environ.items() if "ALLOC_CONF" not in name}
    variables["PYTHONWARNINGS"] = "ignore"
    if way == "on_oom_lines":
        variables["GMLAKE_ON_OOM_LINES"] = "1"
    if way == "expandable":
        variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return machine.told_by(command, cwd=machine.ROOT, env=variables)


def compare(ways: list[str], rounds: int, *, has_gpu: bool) -> dict[str, dict[str, Any]]:
    """Return the median ns, those of each process, and the ratio to the first way."""
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for round_ in range(rounds):
        turn = round_ % len(ways)  # none is always the first
        for way in (*ways[turn:], *ways[:turn]):
            taken[way].append(measure_elsewhere(way, has_gpu=has_gpu))
    figures: dict[str, dict[str, Any]] = {}
    for scenario in taken[ways[0]][0]:
        each = {way: [result[scenario] for result in results] for way, results in taken.items()}
        default = statistics.median(each[ways[0]])
        figures[scenario] = {
            way: {
                "median_ns": round(statistics.median(times), 1),
                "processes_ns": [round(ns, 1) for ns in times],
                "ratio_to_default": round(statistics.median(times) / default, 3),
            }
            for way, times in each.items()
        }
    return figures


def main() -> None:
    """Measure in turns, print, and keep it with --output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ways", default=",".join(WAYS), help="a,b (all)")
    parser.add_argument("--rounds", type=int, default=5, help="processes for each way (5)")
    parser.add_argument("--gpu", action="store_true", help="measure on the GPU of this machine")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way)))
        return
    figures = compare(arguments.ways.split(","), arguments.rounds, has_gpu=arguments.gpu)
    machine.show(
        "ns per pair",
        (
            {"tensor": tensor} | {way: told["median_ns"] for way, told in by_way.items()}
            for tensor, by_way in figures.items()
        ),
    )
    if arguments.output:
        import torch

        standin = "none: host time on the stand-in GPU"
        gpu = torch.cuda.get_device_name() if arguments.gpu else standin
        told = {"torch": torch.__version__, "ways": WAYS, "pairs": figures}
        machine.write("", told, path=arguments.output, gpu=gpu)


if __name__ == "__main__":
    main()
