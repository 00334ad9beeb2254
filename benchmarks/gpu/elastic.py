"""Decoding with elastic caches, beside static ones of the longest length: memory and time.

    PYTHONPATH=benchmarks python -m gpu.elastic [--write] [--size 8b]

Sequences of random length are decoded side by side; where one ends, another begins in its place.
Each step writes a token's keys and values in every layer and attends to all tokens so far, which is
what touches the cache in a model. `static` has a cache of the longest length for each sequence,
`elastic` a gmlake.elastic() of the same shape for each, whose rows are tokens. Both decode the same
sequences, in a process of their own, and their last answers must be equal to the bit.

used: rows that hold a token. memory: what the caches have, whole chunks. reserved: all that the
lake has from the device, in percent of what is live in it.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine

if TYPE_CHECKING:
    import torch

_WAYS = ("static", "elastic")


@dataclass(frozen=True)
class Size:
    """Of a model's cache, and of what is decoded; lengths in tokens."""

    layers: int
    heads: int
    head: int
    longest: int
    sequences: int


_SIZES = {
    "8b": Size(32, 8, 128, 4096, 64),  # keys and values of Llama 3.1 8B
    "tiny": Size(2, 2, 64, 8192, 4),
}


class Slot:
    """A place for one sequence at a time."""

    def __init__(self, way: str, size: Size) -> None:
        """Make its cache; the static one is whole from here on."""
        import torch

        import gmlake

        self._size = size
        shape = (size.longest, size.layers, 2, size.heads, size.head)
        self.elastic = gmlake.elastic(shape, torch.bfloat16) if way == "elastic" else None
        self._static = None
        if way == "static":
            self._static = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
        self.rows = self.end = 0

    def _resize(self, rows: int) -> torch.Tensor:
        self.rows = rows
        if self.elastic is not None:
            return self.elastic.resize(rows)
        assert self._static is not None  # noqa: S101 (one of the two)
        return self._static[:rows]

    def begin(self, prompt: int, end: int) -> None:
        """Begin a sequence with a prompt of ones."""
        self._resize(0)
        self._resize(prompt).fill_(1)
        self.end = end

    def step(self, token: torch.Tensor) -> torch.Tensor:
        """Decode a token [heads, head]; return what the last layer answers."""
        from torch.nn.functional import scaled_dot_product_attention as attend

        rows = self._resize(self.rows + 1)
        rows[-1] = token
        for layer in range(self._size.layers):
            keys, values = rows[:, layer, 0].transpose(0, 1), rows[:, layer, 1].transpose(0, 1)
            token = attend(token[:, None], keys, values)[:, 0]
        return token


def measure(way: str, size: Size, steps: int, rounds: int) -> dict[str, Any]:
    """Decode so many steps some times after one to warm up; return seconds and bytes."""
    import torch

    import gmlake

    gmlake.enable()
    lengths = random.Random(0)  # noqa: S311 (no secret)

    def draw() -> tuple[int, int]:
        prompt = lengths.randint(size.longest // 16, size.longest // 2)
        return prompt, prompt + lengths.randint(size.longest // 32, size.longest // 2)

    slots = [Slot(way, size) for _ in range(size.sequences)]
    for slot in slots:
        slot.begin(*draw())
    token = torch.ones(size.heads, size.head, dtype=torch.bfloat16, device="cuda")
    row_bytes = 2 * 2 * size.layers * size.heads * size.head
    seconds: list[float] = []
    ratios: list[float] = []
    reserved: list[float] = []
    answer = token
    with torch.inference_mode():
        for _ in range(rounds + 1):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(steps):
                for slot in slots:
                    answer = slot.step(token)
                    if slot.rows == slot.end:
                        slot.begin(*draw())
                used = row_bytes * sum(slot.rows for slot in slots)
                held = sum(slot.elastic.memory_bytes for slot in slots if slot.elastic is not None)
                ratios.append((held or row_bytes * size.longest * len(slots)) / used)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
            counters = gmlake.snapshot().devices[0].counters
            reserved.append(counters["reserved_bytes"] / counters["live_bytes"])
    return {
        "token_seconds": [each / steps / len(slots) for each in seconds[1:]],
        "memory_per_used": [statistics.median(ratios), max(ratios)],
        "reserved_per_live": reserved,
        "peak_reserved_bytes": int(torch.cuda.max_memory_reserved()),
        "answer": hex(hash(tuple(answer.float().flatten().tolist()))),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def ask(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    words = ["--size", options.size, "--steps", str(options.steps), "--rounds", str(options.rounds)]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "gpu.elastic", "--one", way, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failed": (done.stderr.strip() or "no message").splitlines()[-1]}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def show(ways: dict[str, dict[str, Any]]) -> None:
    """Print a row for each way."""
    table = Table("caches", "us a token", "(rounds)", "memory / used", "most", "reserved / live")
    for way, told in ways.items():
        if "failed" in told:
            table.add_row(way, told["failed"])
            continue
        times = [each * 1e6 for each in told["token_seconds"]]
        table.add_row(
            way,
            f"{statistics.median(times):.1f}",
            f"{min(times):.1f} to {max(times):.1f}",
            *(f"{each:.3f}" for each in told["memory_per_used"]),
            f"{max(told['reserved_per_live']):.3f}",
        )
    Console(width=120).print(table)


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=_SIZES, default="8b")
    parser.add_argument("--steps", type=int, default=150, help="of each round (150)")
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up (3)")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_elastic.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--one", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        size = _SIZES[options.size]
        print(json.dumps(measure(options.one, size, options.steps, options.rounds)))
        return 0
    ways = {way: ask(way, options) for way in _WAYS}
    figures = {"size": options.size, "steps": options.steps, "ways": ways}
    show(ways)
    if options.output:
        text = json.dumps({"run": machine.describe(), **figures}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")
    ran = [told for told in ways.values() if "failed" not in told]
    if options.write:
        devices = {told["device"] for told in ran}
        print(machine.write("gpu_elastic", figures, gpu=", ".join(sorted(devices)) or "none"))
    return int(len(ran) < len(ways) or len({told["answer"] for told in ran}) > 1)


if __name__ == "__main__":
    sys.exit(main())
