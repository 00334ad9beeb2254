"""Decoding with elastic caches, beside static ones of the longest length: memory and time.

    PYTHONPATH=benchmarks python -m gpu.elastic [--write] [--size 8b]

Sequences of random length are decoded side by side; where one ends, another begins in its place.
Each step writes a token's keys and values in every layer and attends to all tokens so far, which is
what touches the cache in a model. `static` has a cache of the longest length for each sequence,
`elastic` a gmlake.elastic() of the same shape for each, whose rows are tokens, `emptied` the same
with torch.cuda.empty_cache() after each sequence that ended. All decode the same sequences, in a
process of their own, and their last answers must be equal to the bit.

used: rows that hold a token. memory: what the caches have, whole chunks, over what is used.
taken: what the device has less since before the caches, whoever has it, over what is used. Both are
taken after each of many steps that only write, so that most sequences end and others begin. What
such a token takes is all host time, which a model's own work hides or exceeds: a bound for what
growing costs.
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
    from collections.abc import Callable

    import torch

_WAYS = ("static", "elastic", "emptied")


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
        self.elastic = None
        self._static = None
        self._is_emptied = way == "emptied"
        if way != "static":
            self.elastic = gmlake.elastic(shape, torch.bfloat16)
        else:
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
        import torch

        self._resize(0)
        self._resize(prompt).fill_(1)
        self.end = end
        if self._is_emptied:
            torch.cuda.empty_cache()

    def write(self, token: torch.Tensor) -> torch.Tensor:
        """Have a token [heads, 1, head] in every layer; return all rows."""
        rows = self._resize(self.rows + 1)
        rows[-1] = token[:, 0]
        return rows

    def step(self, token: torch.Tensor) -> torch.Tensor:
        """Decode a token like that of write(); return what the last layer answers."""
        rows = self.write(token)
        for keys, values in rows.permute(1, 2, 3, 0, 4):
            token = (token @ keys.transpose(1, 2)).softmax(-1) @ values
        return token


def measure(way: str, size: Size, steps: int) -> dict[str, Any]:
    """Decode so many steps after as many to warm up; return seconds and bytes."""
    import torch

    import gmlake

    gmlake.enable()
    lengths = random.Random(0)  # noqa: S311 (no secret)

    def draw() -> tuple[int, int]:
        prompt = lengths.randint(size.longest // 16, size.longest // 2)
        return prompt, prompt + lengths.randint(size.longest // 32, size.longest // 2)

    torch.empty(1, device="cuda")
    before = torch.cuda.mem_get_info()[0]
    slots = [Slot(way, size) for _ in range(size.sequences)]
    for slot in slots:
        slot.begin(*draw())
    token = torch.ones(size.heads, 1, size.head, dtype=torch.bfloat16, device="cuda")
    row_bytes = 2 * 2 * size.layers * size.heads * size.head

    def go(step: Callable[[Slot], Any]) -> None:
        for slot in slots:
            step(slot)
            if slot.rows == slot.end:
                slot.begin(*draw())

    memory: list[float] = []
    taken: list[float] = []
    write_seconds = 0.0
    for _ in range(size.longest):
        began = time.perf_counter()
        go(lambda slot: slot.write(token))
        write_seconds += time.perf_counter() - began
        used = row_bytes * sum(slot.rows for slot in slots)
        held = sum(slot.elastic.memory_bytes for slot in slots if slot.elastic is not None)
        memory.append((held or row_bytes * size.longest * len(slots)) / used)
        taken.append((before - torch.cuda.mem_get_info()[0]) / used)
    with torch.inference_mode():
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(steps):
                go(lambda slot: slot.step(token))
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
        answer = slots[0].step(token)
    return {
        "write_seconds": write_seconds / size.longest / len(slots),
        "token_seconds": seconds / steps / len(slots),
        "memory_per_used": [statistics.median(memory), max(memory)],
        "taken_per_used": [statistics.median(taken), max(taken)],
        "answer": hex(hash(tuple(answer.float().flatten().tolist()))),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def ask(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    words = ["--size", options.size, "--steps", str(options.steps)]
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


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one of what processes of a way told, or that one `failed`."""
    for told in rounds:
        if "failed" in told:
            return told
    return {
        **rounds[-1],
        **{name: [told[name] for told in rounds] for name in ("write_seconds", "token_seconds")},
        "answer": "differ" if len({told["answer"] for told in rounds}) > 1 else rounds[0]["answer"],
    }


def _median(seconds: list[float]) -> str:
    low, middle, high = (
        1e6 * each for each in (min(seconds), statistics.median(seconds), max(seconds))
    )
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def show(ways: dict[str, dict[str, Any]]) -> None:
    """Print a row for each way."""
    table = Table("caches", "us a write", "us a token")
    for name in ("memory / used", "most", "taken / used", "most"):
        table.add_column(name)
    for way, told in ways.items():
        if "failed" in told:
            table.add_row(way, told["failed"])
            continue
        table.add_row(
            way,
            *(_median(told[name]) for name in ("write_seconds", "token_seconds")),
            *(f"{each:.3f}" for each in told["memory_per_used"]),
            *(f"{each:.3f}" for each in told["taken_per_used"]),
        )
    Console(width=120).print(table)


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=_SIZES, default="8b")
    parser.add_argument("--steps", type=int, default=8, help="of each process (8)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each way (3)")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_elastic.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, _SIZES[options.size], options.steps)))
        return 0
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    ways: dict[str, dict[str, Any]] = {}
    for number in range(options.rounds):
        for way in _WAYS[:: -1 if number % 2 else 1]:
            rounds[way].append(ask(way, options))
        ways = {way: summary(told) for way, told in rounds.items()}
        if options.write or options.output:  # what was measured is kept if a later round hangs
            figures = {"size": options.size, "steps": options.steps, "ways": ways}
            gpu = machine.devices_of(ways)
            machine.write("gpu_elastic", figures, path=options.output, gpu=gpu)
        show(ways)
    return int(len({told.get("answer", "failed") for told in ways.values()} - {"failed"}) != 1)


if __name__ == "__main__":
    sys.exit(main())
