"""Two processes in turns on one device: how long memory takes from one to the other.

    PYTHONPATH=benchmarks python -m gpu.handing [--rounds 100] [--handed 20GiB] [--write]

In its turn a process allocates blocks, fills each with bits that it checks later, and drops them:
they are idle then, in its allocator. Both together want --handed more than the device has, so that
each turn needs what the other one holds idle. Each also has a tensor that stays.

shared      gmlake.enable(share="device"): nothing else is called; the time is that of allocating
default     PyTorch's allocator: who dropped its blocks calls torch.cuda.empty_cache(), and the time
            of that is counted, too
expandable  the same with expandable segments

The first turn of a process takes all the memory that it ever has, and is told apart. In the middle
of the rounds one process is killed; the other takes all that the device has, and then
goes on with a new one. A refusal is a torch.OutOfMemoryError.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
from gmlake.units import parse_size
from gpu.settings import ALLOCATORS

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

WAYS = {"shared": "gmlake", "default": "default", "expandable": "expandable"}
"""The allocator of each, by its name in settings.ALLOCATORS."""
_PIECES = 8  # of a block, compared one by one


# ---- in each of the two processes ----------------------------------------------------------------


class Turns:
    """Does what it is told, a line each; answers with a JSON object."""

    def __init__(self, way: str, block_bytes: int) -> None:
        """Have a tensor that stays."""
        import gmlake

        self.is_shared = way == "shared"
        if self.is_shared:
            gmlake.enable(share="device")
        self.block_bytes = block_bytes
        self.blocks: list[Tensor] = []
        self.kept = self._made(1)
        self.known = self._bits(0)
        self._fill(self.kept, self.known)
        self._has(self.kept, self.known)  # CUDA takes memory for the kernels itself

    def _made(self, count: int) -> list[Tensor]:
        import torch

        size = (_PIECES, self.block_bytes // 8 // _PIECES)
        return [torch.empty(size, dtype=torch.int64, device="cuda") for _ in range(count)]

    def _bits(self, seed: int) -> Tensor:
        import torch

        torch.manual_seed(seed)
        return torch.randint(1 << 62, (self.block_bytes // 8 // _PIECES,), device="cuda")

    @staticmethod
    def _fill(blocks: list[Tensor], bits: Tensor) -> None:
        for block in blocks:
            block.copy_(bits.expand_as(block))

    @staticmethod
    def _has(blocks: list[Tensor], bits: Tensor) -> bool:
        found = [(block == bits).all() for block in blocks]
        return all(each.item() for each in found)

    def about(self, _: int = 0) -> dict[str, Any]:
        """Return the device, and what of it is free."""
        import torch

        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "free_bytes": free_bytes,
            "total_bytes": total_bytes,
        }

    def take(self, count: int) -> dict[str, Any]:
        """Allocate so many blocks."""
        import torch

        before_bytes = self._taken_bytes()
        began = time.perf_counter()
        try:
            self.blocks = self._made(count)
        except torch.OutOfMemoryError as error:
            return {"refused": str(error).splitlines()[0]}
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "taken_bytes": self._taken_bytes() - before_bytes}

    def _taken_bytes(self) -> int:
        import gmlake

        return gmlake.sharing().taken_bytes if self.is_shared else 0

    def use(self, seed: int) -> dict[str, Any]:
        """Fill the blocks, and compare."""
        bits = self._bits(seed)
        self._fill(self.blocks, bits)
        return {"equal": self._has(self.blocks, bits) and self._has(self.kept, self.known)}

    def drop(self, _: int) -> dict[str, Any]:
        """Hold the memory of the blocks idle, or release it where nobody shares it."""
        import torch

        torch.cuda.synchronize()
        self.blocks = []
        began = time.perf_counter()
        if not self.is_shared:
            torch.cuda.empty_cache()
        return {"seconds": time.perf_counter() - began}

    def obey(self) -> None:
        """Read lines to the end."""
        print(json.dumps(self.about()), flush=True)
        for line in sys.stdin:
            name, value = line.split()
            print(json.dumps(getattr(self, name)(int(value))), flush=True)


# ---- who tells them ------------------------------------------------------------------------------


class Process:
    """One of the two."""

    def __init__(self, way: str, block_bytes: int) -> None:
        """Start it; wait() says when it holds what it keeps."""
        setting = ALLOCATORS[WAYS[way]]
        chosen = {"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}
        self.process = subprocess.Popen(  # noqa: S603 (this program)
            [sys.executable, "-m", "gpu.handing", "--one", way, "--block", str(block_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | chosen,
        )

    def wait(self) -> Self:
        """Wait until it can be told something."""
        machine.answer_of(self.process)
        return self

    def tell(self, name: str, value: int = 0) -> dict[str, Any]:
        """Return what it answers to a line."""
        assert self.process.stdin is not None  # noqa: S101 (it is a pipe)
        print(name, value, file=self.process.stdin, flush=True)
        return machine.answer_of(self.process)

    def kill(self) -> None:
        """End it at once, as a signal of the system does."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@dataclass
class Seen:
    """What the turns of a way came to."""

    seconds: list[float]
    handed: list[int]
    refused: list[str]
    is_equal: bool = True

    def turn(self, one: Process, count: int, seed: int, dropped_seconds: float) -> float:
        """Give a process its turn; return how long it took to drop what it had."""
        told = one.tell("take", count)
        if "refused" in told:
            self.refused.append(told["refused"])
            return 0.0
        self.seconds.append(dropped_seconds + told["seconds"])
        print(f"{self.seconds[-1] * 1e3:.1f}", end=" ", flush=True)
        self.handed.append(told["taken_bytes"])
        self.is_equal &= one.tell("use", seed)["equal"]
        return float(one.tell("drop")["seconds"])


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Take turns; return what was seen."""
    block_bytes = parse_size(options.block)
    rounds = options.rounds if way == "shared" else max(2, options.rounds // 4)
    seen = Seen([], [], [])
    with ExitStack() as stack:
        first, other = [stack.enter_context(Process(way, block_bytes)) for _ in range(2)]
        first.wait()
        about = other.wait().tell("about")
        count = (about["free_bytes"] + parse_size(options.handed)) // 2 // block_bytes
        dropped, begun = 0.0, []
        for number in range(rounds):
            if number == rounds // 2:
                first.kill()
                idle = count if way == "shared" else 0
                left_bytes = other.tell("about")["free_bytes"]
                all_of_it = other.tell("take", left_bytes // block_bytes - 1 + idle)
                used_bytes = about["total_bytes"] - other.tell("about")["free_bytes"]
                other.tell("drop")
                first = stack.enter_context(Process(way, block_bytes)).wait()
                dropped = 0.0
            for one, seed in ((first, 2 * number + 1), (other, 2 * number + 2)):
                dropped = seen.turn(one, count, seed, dropped)
                is_first = number == 0 or (number == rounds // 2 and one is first)
                if is_first and not seen.refused:  # takes all it ever has
                    begun.append(seen.seconds.pop())
                    seen.handed.pop()
    print("ms")
    if "refused" in all_of_it:
        seen.refused.append(all_of_it["refused"])
    seconds = sorted(seen.seconds) or [0.0]
    return {
        **{name: about[name] for name in ("device", "torch", "total_bytes")},
        "rounds": rounds,
        "taken_bytes": count * block_bytes,
        "handed_bytes": round(statistics.median(seen.handed)),
        "median_seconds": round(statistics.median(seconds), 5),
        "p99_seconds": round(seconds[min(len(seconds) - 1, round(0.99 * len(seconds)))], 5),
        "most_seconds": round(seconds[-1], 5),
        "turns": len(seconds),
        "first_turns_seconds": [round(each, 5) for each in begun],
        "turns_seconds": [round(each, 5) for each in seen.seconds],
        "refused": seen.refused,
        "has_same_bits": seen.is_equal,
        "used_after_the_kill": round(used_bytes / about["total_bytes"], 4),
    }


def show(figures: dict[str, Any]) -> None:
    """Print a row for each way."""
    names = ("handed_bytes", "median_seconds", "p99_seconds", "most_seconds", "refused")
    rows = (
        {"way": way, **{name: told[name] for name in names}, "same bits": told["has_same_bits"]}
        for way, told in figures["ways"].items()
    )
    machine.show("two processes in turns", rows)


def main() -> int:
    """Measure, print, and keep it where asked; 1 where gmlake refused memory, or bits differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--rounds", type=int, default=100, help="turns of each process; a quarter where not shared"
    )
    parser.add_argument("--handed", default="20GiB", help="that each turn needs of the other's")
    parser.add_argument("--block", default="512MiB", help="size of an allocation")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_handing.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        Turns(options.one, parse_size(options.block)).obey()
        return 0
    figures: dict[str, Any] = {"block_bytes": parse_size(options.block), "ways": {}}
    for way in options.ways:
        figures["ways"][way] = measure(way, options)
        if options.write or options.output:
            gpu = machine.devices_of(figures["ways"].values())
            machine.write("gpu_handing", figures, path=options.output, gpu=gpu)
    show(figures)
    ways = figures["ways"].values()
    is_refused = figures["ways"].get("shared", {}).get("refused")
    return int(bool(is_refused) or not all(told["has_same_bits"] for told in ways))


if __name__ == "__main__":
    sys.exit(main())
