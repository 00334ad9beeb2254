"""Decoding with elastic caches, beside static ones of the longest length: memory and time.

    PYTHONPATH=benchmarks python -m gpu.elastic [--write] [--size 8b]

Sequences of random length are decoded side by side; where one ends, another begins in its place.
Each step writes a token's keys and values in every layer and attends to all tokens so far, which is
what touches the cache in a model. `static` has a cache of the longest length for each sequence,
`elastic` a gmlake.elastic() of the same shape for each, whose rows are tokens, `emptied` the same
with torch.cuda.empty_cache() after each sequence that ended. All decode the same sequences.

Memory, in processes of their own, after each of many steps that only write, so that most sequences
end and others begin. used: rows that hold a token. memory: what the caches have, whole chunks, over
what is used. taken: what the device has less since before the caches, whoever has it, over what is
used. A write is all host time, which a model's own work hides or exceeds.

Time, in one process for each pair, since processes differ by more than their caches do: static
caches and those of the other way decode each token after one another, whose turn is first changes,
and each step of all sequences gives one ratio. The answers must be equal to the bit.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import random
import statistics
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
_WARMING = 10  # steps that are not counted


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


class Decoding:
    """All sequences, with caches of one way: the same ones for each way."""

    def __init__(self, way: str, size: Size) -> None:
        """Begin the first sequences."""
        import torch

        self._lengths = random.Random(0)  # noqa: S311 (no secret)
        self._size = size
        self._token = torch.ones(size.heads, 1, size.head, dtype=torch.bfloat16, device="cuda")
        self.slots = [Slot(way, size) for _ in range(size.sequences)]
        for slot in self.slots:
            slot.begin(*self._draw())

    def _draw(self) -> tuple[int, int]:
        longest = self._size.longest
        prompt = self._lengths.randint(longest // 16, longest // 2)
        return prompt, prompt + self._lengths.randint(longest // 32, longest // 2)

    def advance(
        self, number: int, step: Callable[[Slot, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Let a slot have a token; return what step() does. Another sequence begins at its end."""
        slot = self.slots[number]
        answer = step(slot, self._token)
        if slot.rows == slot.end:
            slot.begin(*self._draw())
        return answer

    def write(self) -> None:
        """Write a token to every slot."""
        for number in range(len(self.slots)):
            self.advance(number, Slot.write)


def measure_memory(way: str, size: Size) -> dict[str, Any]:
    """Write tokens as many times as the longest sequence has; return seconds and bytes."""
    import torch

    import gmlake

    gmlake.enable()
    torch.empty(1, device="cuda")
    before = torch.cuda.mem_get_info()[0]
    decoding = Decoding(way, size)
    slots = decoding.slots
    row_bytes = 2 * 2 * size.layers * size.heads * size.head
    memory: list[float] = []
    taken: list[float] = []
    write_seconds = 0.0
    for _ in range(size.longest):
        began = time.perf_counter()
        decoding.write()
        write_seconds += time.perf_counter() - began
        used = row_bytes * sum(slot.rows for slot in slots)
        held = sum(slot.elastic.memory_bytes for slot in slots if slot.elastic is not None)
        memory.append((held or row_bytes * size.longest * len(slots)) / used)
        taken.append((before - torch.cuda.mem_get_info()[0]) / used)
    return {
        "write_seconds": write_seconds / size.longest / len(slots),
        "memory_per_used": [statistics.median(memory), max(memory)],
        "taken_per_used": [statistics.median(taken), max(taken)],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def measure_time(way: str, size: Size, steps: int) -> dict[str, Any]:
    """Decode so many steps with static caches and with those of a way; return seconds of each."""
    import torch

    import gmlake

    gmlake.enable()
    both = {each: Decoding(each, size) for each in ("static", way)}
    seconds: dict[str, list[float]] = {each: [] for each in both}
    has_same_answers = True
    for decoding in both.values():
        for _ in range(size.longest // 2):  # until sequences end and begin all the time
            decoding.write()
    with torch.inference_mode():
        for step in range(steps + _WARMING):
            for taken in seconds.values():
                taken.append(0.0)
            for number in range(size.sequences):
                answers = []
                for each in list(both)[:: -1 if (step + number) % 2 else 1]:
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                    answers.append(both[each].advance(number, Slot.step))
                    torch.cuda.synchronize()
                    seconds[each][-1] += (time.perf_counter() - began) / size.sequences
            has_same_answers = has_same_answers and torch.equal(*answers)
    told = {each: taken[_WARMING:] for each, taken in seconds.items()}
    ratios = [its / static for static, its in zip(told["static"], told[way], strict=True)]
    return {
        "static_seconds": _quartiles(told["static"]),
        "token_seconds": _quartiles(told[way]),
        "ratio": _quartiles(ratios),
        "has_same_answers": has_same_answers,
    }


def _quartiles(figures: list[float]) -> list[float]:
    """Return the lower quartile, the median and the upper one."""
    return statistics.quantiles(figures, n=4)


def ask(way: str, part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    words = ["--size", options.size, "--steps", str(options.steps), "--part", part]
    return machine.told_by([sys.executable, "-m", "gpu.elastic", "--one", way, *words])


def summary(rounds: list[dict[str, Any]], times: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one of what processes of a way told, or that one `failed`."""
    for told in rounds + times:
        if "failed" in told:
            return told
    return {
        **rounds[-1],
        "write_seconds": [told["write_seconds"] for told in rounds],
        "times": times,
    }


def _spread(figures: list[float], factor: float, digits: int) -> str:
    low, middle, high = (
        factor * each for each in (min(figures), statistics.median(figures), max(figures))
    )
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def show(ways: dict[str, dict[str, Any]]) -> None:
    """Print a row for each way; a token's time is the median of its steps, in each process."""
    table = Table("caches", "us a write", "us a token", "of static")
    for name in ("memory / used", "most", "taken / used", "most"):
        table.add_column(name)
    for way, told in ways.items():
        if "failed" in told:
            table.add_row(way, told["failed"])
            continue
        times = told["times"]
        table.add_row(
            way,
            _spread(told["write_seconds"], 1e6, 1),
            _spread([each["token_seconds"][1] for each in times], 1e6, 0) if times else "",
            _spread([each["ratio"][1] for each in times], 1, 4) if times else "",
            *(f"{each:.3f}" for each in told["memory_per_used"]),
            *(f"{each:.3f}" for each in told["taken_per_used"]),
        )
    Console(width=120).print(table)


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=_SIZES, default="8b")
    parser.add_argument("--steps", type=int, default=100, help="of each process for time (100)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each way (3)")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_elastic.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=_WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=("memory", "time"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        size = _SIZES[options.size]
        if options.part == "time":
            print(json.dumps(measure_time(options.one, size, options.steps)))
        else:
            print(json.dumps(measure_memory(options.one, size)))
        return 0
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    times: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    ways: dict[str, dict[str, Any]] = {}
    for number in range(options.rounds):
        for way in _WAYS[:: -1 if number % 2 else 1]:
            rounds[way].append(ask(way, "memory", options))
            if way != "static":
                times[way].append(ask(way, "time", options))
        ways = {way: summary(rounds[way], times[way]) for way in _WAYS}
        if options.write or options.output:  # what was measured is kept if a later round hangs
            figures = {"size": options.size, "steps": options.steps, "ways": ways}
            gpu = machine.devices_of(ways)
            machine.write("gpu_elastic", figures, path=options.output, gpu=gpu)
        show(ways)
    is_right = all(
        "failed" not in told and all(each["has_same_answers"] for each in told["times"])
        for told in ways.values()
    )
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
