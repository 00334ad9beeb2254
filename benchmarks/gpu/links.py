"""How fast a region wakes on one GPU whose neighbours are idle, and what their links could add.

    PYTHONPATH=benchmarks python -m gpu.links [--bytes 13GiB] [--gpus 4] [--write]

Each way has a process of its own; `out` goes from the first GPU to the host, `in` the other way.

region      a region of gmlake sleeps and wakes
one         one copy of the same bytes between a page-locked buffer and the first GPU
each        the same bytes in equal parts between the host and every GPU at once: what the host
            can give
relayed     pieces go through all GPUs in turn: those of the others pass through a buffer on that
            GPU and a copy between GPUs

Seconds of each round after one to warm up. Every way must return the bytes that it was given.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gmlake.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

WAYS = ("region", "one", "each", "relayed")
_PIECE_BYTES = 64 << 20
_TENSORS = 16  # of the region
_BUFFERS = 4  # of a relaying GPU: some fill while others empty


def numbers(size_bytes: int) -> torch.Tensor:
    """Return bytes on the host, no eight of them like any others."""
    import torch

    return torch.arange(size_bytes // 8, dtype=torch.int64).view(torch.uint8)


def seconds(work: Callable[[], object], gpus: int) -> float:
    """Return what something takes until all GPUs are done."""
    import torch

    for number in range(gpus):
        torch.cuda.synchronize(number)
    began = time.perf_counter()
    work()
    for number in range(gpus):
        torch.cuda.synchronize(number)
    return time.perf_counter() - began


def both_ways(
    out: Callable[[], object],
    into: Callable[[], object],
    gpus: int,
    rounds: int,
    between: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Return the seconds of both in each round after the first. between: is not timed."""
    times: dict[str, Any] = {"out": [], "in": []}
    for _ in range(rounds + 1):
        times["out"].append(seconds(out, gpus))
        between()
        times["in"].append(seconds(into, gpus))
    return {side: taken[1:] for side, taken in times.items()}


def of_region(size_bytes: int, rounds: int) -> dict[str, Any]:
    """Let a region sleep and wake."""
    import torch

    import gmlake

    gmlake.enable()
    expected = numbers(size_bytes // _TENSORS)
    with gmlake.region("weights", backup="cpu"):
        tensors = [expected.cuda() for _ in range(_TENSORS)]
    times = both_ways(lambda: gmlake.sleep("weights"), lambda: gmlake.wake("weights"), 1, rounds)
    return {**times, "is_right": all(torch.equal(each.cpu(), expected) for each in tensors)}


class Copied:
    """Page-locked bytes on the host, and a tensor of as many on a GPU."""

    def __init__(self, expected: torch.Tensor, gpu: int) -> None:
        """Fill both."""
        import torch

        self.expected = expected
        self.host = torch.empty_like(expected, pin_memory=True).copy_(expected)
        self.there = self.host.to(f"cuda:{gpu}")

    def copy(self, *, is_in: bool) -> None:
        """Begin to copy all bytes through that GPU's link."""
        to, source = (self.there, self.host) if is_in else (self.host, self.there)
        to.copy_(source, non_blocking=True)

    def is_right(self) -> bool:
        """Whether the tensor has the bytes that it began with."""
        import torch

        return torch.equal(self.host.copy_(self.there), self.expected)


class Relay:
    """Streams on every GPU, and buffers on those that relay."""

    def __init__(self, copied: Copied, gpus: int) -> None:
        """Take the memory."""
        import torch

        self.copied, self.gpus = copied, gpus
        self.streams = [
            [torch.cuda.Stream(number) for _ in range(_BUFFERS)] for number in range(gpus)
        ]
        self.buffers = [
            [
                torch.empty(_PIECE_BYTES, dtype=torch.uint8, device=f"cuda:{number}")
                for _ in range(_BUFFERS if number else 0)
            ]
            for number in range(gpus)
        ]

    def copy(self, *, is_in: bool) -> None:
        """Begin to copy them piece by piece, each through the link of the next GPU."""
        import torch

        ends = (self.copied.there.split(_PIECE_BYTES), self.copied.host.split(_PIECE_BYTES))
        for number, (there, host) in enumerate(zip(*ends, strict=True)):
            gpu, turn = number % self.gpus, number // self.gpus % _BUFFERS
            source, to = (host, there) if is_in else (there, host)
            with torch.cuda.stream(self.streams[gpu][turn]):
                if gpu:
                    buffer = self.buffers[gpu][turn][: source.numel()]
                    source = buffer.copy_(source, non_blocking=True)
                to.copy_(source, non_blocking=True)


def of_copies(way: str, size_bytes: int, gpus: int, rounds: int) -> dict[str, Any]:
    """Copy in one of the other ways."""
    parts = gpus if way == "each" else 1
    expected = numbers(size_bytes // parts)
    every = [Copied(expected, number) for number in range(parts)]
    ways: list[Copied | Relay] = [*every]
    if way == "relayed":
        ways = [Relay(every[0], gpus)]

    def work(*, is_in: bool) -> None:
        for one in ways:
            one.copy(is_in=is_in)

    def clear() -> None:
        for copied in every:
            copied.there.zero_()

    times = both_ways(lambda: work(is_in=False), lambda: work(is_in=True), gpus, rounds, clear)
    return {**times, "is_right": all(copied.is_right() for copied in every)}


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of a way, and what it ran on."""
    import torch

    gpus = options.gpus or torch.cuda.device_count()
    told = (
        of_region(options.bytes, options.rounds)
        if way == "region"
        else of_copies(way, options.bytes, gpus, options.rounds)
    )
    versions = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    return {**told, "bytes": options.bytes, "gpus": gpus, **versions}


def show(ways: dict[str, dict[str, Any]]) -> None:
    """Print a row for each way."""
    table = Table("way", "out s", "GB/s", "in s", "GB/s", "bytes")
    for way, told in ways.items():
        if "failed" in told:
            table.add_row(way, told["failed"])
            continue
        cells = []
        for side in ("out", "in"):
            median = statistics.median(told[side])
            cells += [f"{median:.3f}", f"{told['bytes'] / 1e9 / median:.1f}"]
        table.add_row(way, *cells, "same" if told["is_right"] else "DIFFER")
    Console(width=120).print(table)


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=parse_size, default="13GiB", help="to be moved (13GiB)")
    parser.add_argument("--gpus", type=int, help="of the host (all)")
    parser.add_argument("--rounds", type=int, default=5, help="after one to warm up (5)")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_links.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    words = ["--bytes", str(options.bytes), "--rounds", str(options.rounds)]
    words += ["--gpus", str(options.gpus)] if options.gpus else []
    command = [sys.executable, "-m", "gpu.links", *words, "--one"]
    ways = {}
    for way in WAYS:
        ways[way] = machine.told_by([*command, way])
        if options.write or options.output:  # what was measured is kept if a later way hangs
            gpu = machine.devices_of(ways)
            machine.write("gpu_links", {"ways": ways}, path=options.output, gpu=gpu)
    show(ways)
    return int(not all(told.get("is_right") for told in ways.values()))


if __name__ == "__main__":
    sys.exit(main())
