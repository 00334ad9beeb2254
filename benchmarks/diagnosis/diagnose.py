"""What gmlake.diagnose() costs: a training step in its block against one outside, in one run.

python benchmarks/diagnosis/diagnose.py [--device cuda] [--rounds 21] [--write]

A step is that of examples/train_gpt.py, with checkpoints. "objects" keeps no call paths and reads
no indices; "all" is what gmlake.diagnose() does by default. The ways take turns in rounds; a ratio
is the median over rounds of that round's ratio. What the block's begin and end cost, once, the end
with the search for all ten patterns, is apart.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

import machine

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))
from examples.diagnosis.gpt import SMALL, Training
from examples.train_gpt import SIZES, Config

from gmlake.diagnosis.operators import diagnose

if TYPE_CHECKING:
    from gmlake.diagnosis.operators import Report

CONFIGS = {
    "4 layers of 256": (SMALL, 4, 128),
    "4 layers of 768": (Config(layers=4, width=768, heads=12, context=256, vocab=8192), 4, 256),
}
ON_GPU = {**CONFIGS, "small": (SIZES["small"], 4, 1024), "medium": (SIZES["medium"], 4, 1024)}
WAYS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "objects": {"frames": 0, "indices": "never"},
    "all": {},
}


class Timed:
    """A training and its times, all in seconds."""

    def __init__(self, config: Config, device: torch.device, batch: int, sequence: int) -> None:
        """Take the first steps, which are never typical."""
        self._training = Training(config, device, is_fused=False)
        self._sizes = batch, sequence
        self.steps: list[float] = []
        self.begins: list[float] = []
        self.ends: list[float] = []
        self.calls = 0
        for _ in range(2):
            self._training.step(*self._sizes)

    def run(self, options: dict[str, Any] | None) -> None:
        """Take a step in its own block, or in none."""
        if options is None:
            self._step()
            return
        report = diagnose(model=self._training.model, **options)
        began = time.perf_counter()
        report.__enter__()
        self.begins.append(time.perf_counter() - began)
        self._step()
        self._end(report)

    def _step(self) -> None:
        self._wait()
        began = time.perf_counter()
        self._training.step(*self._sizes)
        self._wait()
        self.steps.append(time.perf_counter() - began)

    def _end(self, report: Report) -> None:
        began = time.perf_counter()
        report.__exit__(None, None, None)
        self.ends.append(time.perf_counter() - began)
        self.calls = sum(len(found.trace.apis) for found in report.devices.values())

    def _wait(self) -> None:
        if self._training.device.type == "cuda":
            torch.cuda.synchronize()


def measure(name: str, device: torch.device, rounds: int) -> dict[str, dict[str, float]]:
    """Return the figures of each way."""
    config, batch, sequence = ON_GPU[name]
    timed = {way: Timed(config, device, batch, sequence) for way in WAYS}
    order = list(WAYS)
    for _ in range(rounds):
        for way in order:
            timed[way].run(WAYS[way])
        order = [*order[1:], order[0]]  # none is always the first
    return {way: summarise(one, timed["none"]) for way, one in timed.items()}


def summarise(one: Timed, none: Timed) -> dict[str, float]:
    """Return the median step, its ratio to none, and what begin and end cost."""
    ratios = [time / base for time, base in zip(one.steps, none.steps, strict=True)]
    figures = {
        "step_ms": round(1e3 * statistics.median(one.steps), 2),
        "ratio_to_none": round(statistics.median(ratios), 3),
    }
    if one.calls:
        extra = statistics.median(
            time - base for time, base in zip(one.steps, none.steps, strict=True)
        )
        figures |= {
            "calls": one.calls,
            "us_per_call": round(1e6 * extra / one.calls, 1),
            "begin_ms": round(1e3 * statistics.median(one.begins), 1),
            "end_ms": round(1e3 * statistics.median(one.ends), 1),
        }
    return figures


def main() -> None:
    """Run everything, print it, and keep it with --write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=21, help="how often each way has its turn")
    parser.add_argument("--write", action="store_true", help="keep it as results/diagnose.json")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    names = ON_GPU if device.type == "cuda" else CONFIGS
    figures = {name: measure(name, device, arguments.rounds) for name in names}
    table = Table("GPT", "way", "step, ms", "ratio", "calls", "µs per call", "begin, ms", "end, ms")
    for name, ways in figures.items():
        for way, found in ways.items():
            table.add_row(name, way, *(str(value) for value in found.values()))
    Console().print(table)
    if arguments.write:
        is_cuda = device.type == "cuda"
        gpu = torch.cuda.get_device_name() if is_cuda else "none: PyTorch on one thread of the CPU"
        circumstances = {"torch": torch.__version__, "rounds": arguments.rounds}
        machine.write("diagnose", {**circumstances, "figures": figures}, gpu=gpu)


if __name__ == "__main__":
    main()
