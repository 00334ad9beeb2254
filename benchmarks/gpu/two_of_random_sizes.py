"""Two processes whose blocks have random sizes on one device: who is refused, and what it costs.

    PYTHONPATH=benchmarks python -m gpu.two_of_random_sizes [--allocator gmlake] [--live 0.89]
    PYTHONPATH=benchmarks python -m gpu.two_of_random_sizes --write

Both have a budget: together --live of --memory, which is what the device has for them; another
process takes the rest of it. Every 1.5 seconds the larger budget, three quarters, changes sides:
one process frees its oldest blocks until it is within its own, and then the other may have more.
Sizes are log-uniform, from 256 KiB to 2.9 GiB. Where one exceeds the budget, the two oldest blocks
are freed, and another size is drawn. Each block is filled with a number of its own, and compared
when it is freed.

gmlake      gmlake.enable(share="device"): nothing else is called
default     PyTorch's allocator: whose budget falls calls torch.cuda.empty_cache()
expandable  the same with expandable segments

Prints one line of JSON; --write does so for every allocator, live to 0.89 and to 0.76, and keeps
them. `allocating_seconds`, of each process, is that of torch.empty() and
empty_cache(); `p999_ms` is of the requests of both. A refusal is a torch.OutOfMemoryError. --set
names settings of gmlake, as GMLAKE_SET does. --compare ends writes and compares the ends of blocks
alone, for devices that only copy.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import machine
from gmlake.units import parse_size
from gpu.settings import ALLOCATORS

if TYPE_CHECKING:
    from torch import Tensor

CHOICES = ("gmlake", "expandable", "default")
LIVE = (0.89, 0.76)
LEAST_BYTES = 1 << 18
LARGER = 0.75  # of what both may have
FREED_AT_ONCE = 2
END = 16  # numbers
NEARLY = 64 << 20  # that what is left may miss


# ---- in each process -----------------------------------------------------------------------------


class Blocks:
    """The blocks of a process, the oldest first."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Have none."""
        self.compares_all = options.compare == "all"
        self.largest_bytes = parse_size(options.largest)
        self.random = random.Random(options.one)  # noqa: S311 (sizes)
        self.blocks: deque[tuple[Tensor, int]] = deque()
        self.live_bytes = self.requests = self.refused = self.wrong = 0
        self.allocating_ns: list[int] = []
        self.emptying_ns = 0

    def draw(self) -> int:
        """Return the size of a block, in bytes."""
        size = LEAST_BYTES * math.exp(
            self.random.random() * math.log(self.largest_bytes / LEAST_BYTES)
        )
        return int(size) // 8 * 8

    def _ends(self, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor[:END], tensor[-END:])

    def add(self, size: int) -> None:
        """Allocate and fill a block."""
        self.requests += 1
        began = time.perf_counter_ns()
        try:
            tensor = torch.empty(size // 8, dtype=torch.int64, device="cuda")
        except torch.OutOfMemoryError:
            self.refused += 1
            return
        finally:
            self.allocating_ns.append(time.perf_counter_ns() - began)
        number = self.random.getrandbits(62)
        if self.compares_all:
            tensor.fill_(number)
        else:
            source = torch.full((END,), number)
            for end in self._ends(tensor):
                end.copy_(source)
        self.blocks.append((tensor, number))
        self.live_bytes += size

    def free_oldest(self) -> None:
        """Compare a block, and free it."""
        tensor, number = self.blocks.popleft()
        if self.compares_all:
            found = [each.item() for each in tensor.aminmax()]
        else:
            found = [each for end in self._ends(tensor) for each in end.tolist()]
        self.wrong += any(each != number for each in found)
        self.live_bytes -= tensor.numel() * 8

    def shrink_to(self, budget_bytes: int) -> None:
        """Free until the rest is within the budget."""
        while self.live_bytes > budget_bytes:
            self.free_oldest()

    def request_within(self, budget_bytes: int) -> None:
        """Add a block, or make room where that would be too much."""
        size = self.draw()
        if self.live_bytes + size <= budget_bytes:
            self.add(size)
            return
        for _ in range(min(FREED_AT_ONCE, len(self.blocks))):
            self.free_oldest()

    def empty_cache(self) -> None:
        """Give back what is free, as PyTorch's allocators have to be told to."""
        began = time.perf_counter_ns()
        torch.cuda.empty_cache()
        self.emptying_ns += time.perf_counter_ns() - began


def run_one(options: argparse.Namespace) -> None:
    """Be one of the two: say that it is ready, and begin at the time that a line names."""
    is_shared = options.allocator == "gmlake"
    if is_shared:
        import gmlake

        gmlake.enable(share="device")
    blocks = Blocks(options)
    blocks.add(1 << 20)  # kernels are loaded, and CUDA takes memory for them
    blocks.free_oldest()
    print(json.dumps({}), flush=True)
    begins = float(sys.stdin.readline())
    both_bytes = parse_size(options.memory) * options.live
    budget_bytes = int(both_bytes * (1 - LARGER))
    with options.page.open("r+b") as file, mmap.mmap(file.fileno(), 2) as fallen:
        while (seconds := time.time() - begins) < options.seconds:
            turn = int(max(0.0, seconds) / options.period) + 1
            is_mine = turn % 2 != options.one
            if is_mine and fallen[1 - options.one] == turn % 256:
                budget_bytes = int(both_bytes * LARGER)
            elif not is_mine and fallen[options.one] != turn % 256:
                budget_bytes = int(both_bytes * (1 - LARGER))
                blocks.shrink_to(budget_bytes)
                if not is_shared:
                    blocks.empty_cache()
                fallen[options.one] = turn % 256
            blocks.request_within(budget_bytes)
    blocks.shrink_to(0)
    told = {name: getattr(blocks, name) for name in ("requests", "refused", "wrong")}
    seconds = (sum(blocks.allocating_ns) + blocks.emptying_ns) / 1e9
    longest = sorted(blocks.allocating_ns)[-blocks.requests // 100 - 1 :]
    print(json.dumps({**told, "seconds": seconds, "longest_ns": longest}), flush=True)


def run_ballast() -> None:
    """Leave so much of the device as a line says, and answer with what it has then."""
    torch.cuda.init()
    torch.empty(1, device="cuda")
    print(json.dumps({}), flush=True)
    left_bytes = int(sys.stdin.readline())
    taken_bytes = max(0, torch.cuda.mem_get_info()[0] - left_bytes)
    kept = torch.empty(taken_bytes, dtype=torch.uint8, device="cuda")
    print(json.dumps({"free_bytes": torch.cuda.mem_get_info()[0]}), flush=True)
    sys.stdin.read()
    del kept


# ---- who starts them -----------------------------------------------------------------------------


class Process:
    """One of the two, or the ballast (None)."""

    def __init__(self, number: int | None, options: argparse.Namespace) -> None:
        """Start it."""
        name = options.allocator if number is not None else "default"
        variables = {
            **os.environ,
            "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[name],
            "GMLAKE_SET": options.set,
        }
        self.process = subprocess.Popen(  # noqa: S603 (this program)
            [
                *(sys.executable, "-m", "gpu.two_of_random_sizes", *sys.argv[1:]),
                *("--one", "-1" if number is None else str(number), "--page", str(options.page)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )

    def answer(self) -> dict[str, Any]:
        """Return the next line that it prints."""
        return machine.answer_of(self.process)

    def tell(self, line: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None  # noqa: S101 (it is a pipe)
        print(line, file=self.process.stdin, flush=True)


def _percentile_ms(told: list[dict[str, Any]], part: float) -> float:
    """Return that of all requests; each tells the longest hundredth of its own."""
    longest: list[int] = sorted((each for one in told for each in one["longest_ns"]), reverse=True)
    index = int(sum(one["requests"] for one in told) * (1 - part))
    return round(longest[min(index, len(longest) - 1)] / 1e6, 3)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run them; return the figures."""
    memory_bytes = parse_size(options.memory)
    options.page.write_bytes(bytes(2))
    ballast, *both = started = [Process(number, options) for number in (None, 0, 1)]
    try:
        for one in started:
            one.answer()
        ballast.tell(str(memory_bytes))
        free_bytes = ballast.answer()["free_bytes"]
        if free_bytes < memory_bytes - NEARLY:
            sys.exit(f"--memory is {options.memory}, and the device has {free_bytes >> 20} MiB")
        begins = time.time() + 0.5
        for one in both:
            one.tell(str(begins))
        told = [one.answer() for one in both]
    finally:
        for one in started:
            one.process.kill()
            one.process.wait()
    return {
        "allocator": options.allocator,
        "set": options.set,
        "live": options.live,
        "memory": options.memory,
        **{name: sum(one[name] for one in told) for name in ("refused", "requests")},
        "allocating_seconds": [round(one["seconds"], 3) for one in told],
        "allocating_seconds_sum": round(sum(one["seconds"] for one in told), 3),
        "p999_ms": _percentile_ms(told, 0.999),
        "wrong_contents": sum(one["wrong"] for one in told),
    }


def main() -> int:
    """Measure and print; 1 where contents differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--allocator", choices=CHOICES, default="gmlake")
    parser.add_argument("--live", type=float, default=0.89, help="of the memory, at most")
    parser.add_argument("--seconds", type=float, default=18)
    parser.add_argument("--period", type=float, default=1.5, help="seconds of a larger budget")
    parser.add_argument("--memory", default="24GiB", help="that the device has for both")
    parser.add_argument("--largest", default="2969MiB", help="block")
    parser.add_argument("--compare", choices=("all", "ends"), default="all")
    parser.add_argument("--set", default="", help="settings of gmlake")
    parser.add_argument("--write", action="store_true", help="keep the figures of all")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is None:
        chosen = product(LIVE, CHOICES) if options.write else [(options.live, options.allocator)]
        rows = []
        for options.live, options.allocator in chosen:
            with tempfile.TemporaryDirectory() as folder:
                options.page = Path(folder) / "fallen"
                rows.append(measure(options))
            print(json.dumps(rows[-1]), flush=True)
        if options.write:
            gpu = torch.cuda.get_device_name()
            machine.write("gpu_two_of_random_sizes", {"rows": rows}, gpu=gpu)
        return int(any(row["wrong_contents"] for row in rows))
    if options.one < 0:
        run_ballast()
    else:
        run_one(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
