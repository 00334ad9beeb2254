"""Steps of a program under two allocators in turn, in this process; gpu.turns starts it.

Prints one JSON object. Each side has a program of its own, made under its allocator, and its own
stream:

- Weights, optimizer and keys and values have to belong to somebody. Were there one model, one side
  would have all of it and the other one temporary memory only, and what generation keeps from step
  to step would be freed by the side that did not allocate it. So each side holds what it would hold
  alone. Both fit with a third of the device to spare: gmlake saves time only while memory is
  plentiful.
- PyTorch keeps the idle memory of each stream apart, and skips expandable segments while they are
  switched off. So default and expandable segments, switched between steps, serve nothing of each
  other's. gmlake does not use the setting.

The side called `again` is PyTorch's default allocator once more: what it differs by from `default`
is what two copies of one program differ by, whatever the allocator. A side can be compared with
that.

A pair is the same step of both, with the same random numbers, in an order that is drawn; each side
goes first as often as the other one. Times of a step:

wall     host time until the device has finished.
launch   host time until the step has returned.
device   between two events around the step; where launches take longer than kernels, this is the
         host's time as well.

Garbage is collected before pairs that are not counted only.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

# The setting of expandable segments, and snapshots, have private names only.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gpu.model import SIZES as TUNED_SIZES
from gpu.programs import (
    LLAMAS,
    MAKERS as PROGRAMS,
    MIXTURES,
    ConvolutionTraining,
    LlamaSizes,
    LlamaTraining,
    MixtureTraining,
    Program,
    Tuning,
    lengths,
)
from gpu.settings import TURNS
from gpu.varying import begin
from machine import end_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIDES = ("gmlake", "expandable", "default", "again")
TIMES = ("wall", "launch", "device")
_EVERY = 50  # pairs between two that are not counted
_BEGAN = time.monotonic()

# No side may be the first to meet a shape, where planning it takes a large part of a step: cuDNN
# plans each convolution at its first use, cuBLAS each product, of which experts have many.
_PLANNED = ("convnet", "moe")


# ---- programs -----------------------------------------------------------------------------------


def _never_again(program: LlamaTraining | Tuning, longest: int) -> Program:
    """Give the program lengths that do not come again, the longest first."""
    drawn = lengths(len(program.lengths), longest // 24, longest, multiple=1)
    at = drawn.index(max(drawn))
    drawn[0], drawn[at] = drawn[at], drawn[0]
    program.lengths = drawn
    return program


def _llama(sizes: LlamaSizes, *, has_checkpoints: bool = False) -> Callable[[bool, int], Program]:
    def make(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001 (called by `build` only)
        mine = LLAMAS["tiny"] if is_tiny else sizes
        program = LlamaTraining(mine, steps, has_checkpoints=has_checkpoints)
        return _never_again(program, mine.longest)

    return make


def _tuning(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001
    sizes = TUNED_SIZES["tiny"] if is_tiny else replace(TUNED_SIZES["1b"], layers=12)
    return _never_again(Tuning(sizes, 2 if is_tiny else 8, steps), sizes.longest)


def _mixture(is_tiny: bool, steps: int) -> Program:  # noqa: ARG001, FBT001
    return MixtureTraining(MIXTURES["tiny"] if is_tiny else replace(MIXTURES["full"], layers=6))


def _convolutions(is_tiny: bool, steps: int) -> Program:  # noqa: FBT001
    if is_tiny:
        return ConvolutionTraining((1, 1, 1, 1), range(32, 129, 8), 2 * 128 * 128, steps)
    return ConvolutionTraining((3, 4, 6, 3), range(160, 513, 16), 64 * 256 * 256, steps)


_NARROW = LlamaSizes(layers=22, width=512, heads=8, pairs=4, inner=1408, batch=1, longest=1024)
MAKERS: dict[str, Callable[[bool, int], Program]] = {
    "llama-1b": _llama(replace(LLAMAS["1b"], batch=2)),
    "llama-1b-checkpoint": _llama(replace(LLAMAS["1b"], batch=2), has_checkpoints=True),
    "llama-3b-checkpoint": _llama(
        replace(LLAMAS["3b"], batch=2, longest=2048), has_checkpoints=True
    ),
    "lora": _tuning,
    "moe": _mixture,
    "convnet": _convolutions,
    "generate": PROGRAMS["generate"],
    "launch-bound": _llama(_NARROW),
}


# ---- sides --------------------------------------------------------------------------------------


@dataclass
class Step:
    """What a step took, in ns, and what it asked of the driver.

    driver_ns: of gmlake's calls; driver_calls: gmlake's, or the segments that PyTorch's allocator
    took from the device and returned.
    """

    wall: int
    launch: int
    device: int
    driver_ns: int
    driver_calls: int
    loss: str


class Side:
    """An allocator, and a program that only it serves."""

    def __init__(self, name: str) -> None:
        """Begin without a program."""
        self.name = name
        self.stream = torch.cuda.Stream()
        self.session = gmlake.enabled() if name == "gmlake" else None
        self.program: Program | None = None
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Let this allocator serve, on this side's stream."""
        if self.session is None:
            is_expandable = self.name == "expandable"
            torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{is_expandable}")
        with self.session or nullcontext(), torch.cuda.stream(self.stream):
            if self.session and self.session.mode != "native":
                sys.exit(f"gmlake does not serve: {self.session.why}")
            yield

    def build(self, program: str, *, is_tiny: bool, steps: int) -> None:
        """Make the program, the same as any other side's."""
        torch.manual_seed(0)
        with self.serving():
            self.program = MAKERS[program](is_tiny, steps)
            torch.cuda.synchronize()

    def _driver(self) -> tuple[int, int]:
        """Return ns and calls since the process began."""
        stats = torch.cuda.memory_stats()  # on both sides, since it leaves caches cold
        if self.session is not None:
            stats = self.session.stats()
            calls = stats.get("driver_calls", {})
            return stats.get("driver_time_ns", 0), sum(calls.values())
        return 0, stats.get("num_device_alloc", 0) + stats.get("num_device_free", 0)

    def step(self, index: int) -> Step:
        """Take the step of that index."""
        assert self.program is not None  # noqa: S101 (for the type checker)
        torch.manual_seed(index)
        first, last = self.events
        with self.serving():
            driver_ns, driver_calls = self._driver()
            torch.cuda.synchronize()
            first.record()
            began = time.perf_counter_ns()
            loss = self.program.step(index)
            returned = time.perf_counter_ns()
            last.record()
            torch.cuda.synchronize()
            ended = time.perf_counter_ns()
            now_ns, now_calls = self._driver()
            return Step(
                wall=ended - began,
                launch=returned - began,
                device=round(first.elapsed_time(last) * 1e6),
                driver_ns=now_ns - driver_ns,
                driver_calls=now_calls - driver_calls,
                loss=float(loss).hex(),
            )


# ---- pairs --------------------------------------------------------------------------------------


class Turns:
    """Two sides, and the steps that they take in turn."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Make both sides, the device being chosen."""
        self.options = options
        self.sides = [Side(options.side), Side(options.base)]
        self.scout = Side("default") if options.program in _PLANNED else None
        steps = options.warming + options.pairs + 2 + options.pairs // _EVERY
        for side in [*self.sides, *([self.scout] if self.scout else [])]:
            side.build(options.program, is_tiny=options.tiny, steps=steps)
        self.index = 0
        self.draw = random.Random(0)  # noqa: S311 (no secret)
        self.orders: list[bool] = []
        self.losses_differ = 0

    def _next(self) -> tuple[int, list[Side]]:
        """Return the next step's index, and the sides in the order that is drawn for it.

        Of each ten pairs, five begin with either side.
        """
        if not self.orders:
            self.orders = [True, False] * 5
            self.draw.shuffle(self.orders)
        index, self.index = self.index, self.index + 1
        if self.scout:
            self.scout.step(index)
        return index, self.sides if self.orders.pop() else self.sides[::-1]

    def pair(self) -> tuple[dict[str, Step], str]:
        """Take the next step on both sides; return what each took, and which side was first."""
        index, order = self._next()
        taken = {side.name: side.step(index) for side in order}
        self.losses_differ += len({step.loss for step in taken.values()}) > 1
        return taken, order[0].name

    def rest(self) -> None:
        """Collect garbage, and take a pair that is not counted."""
        gc.collect()
        self.pair()

    def is_late(self, pair_seconds: float = 0.0) -> bool:
        """Whether the time is spent, or would be after so many seconds more."""
        limit = self.options.seconds
        return bool(limit and time.monotonic() - _BEGAN + pair_seconds > limit)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Take the pairs, and tell of each; times in ns."""
    begin(argparse.Namespace(program=options.program, record=None, limit=0))
    turns = Turns(options)
    gc.collect()
    gc.freeze()
    gc.disable()
    took = 0.0
    for _ in range(options.warming):
        began = time.monotonic()
        turns.pair()
        took = time.monotonic() - began
        if turns.is_late():
            break
    pairs: list[dict[str, Step]] = []
    firsts: list[str] = []
    for number in range(options.pairs):
        if number % _EVERY == 0:
            turns.rest()
        taken, first = turns.pair()
        pairs.append(taken)
        firsts.append(first)
        if turns.is_late(took):
            break
    free_bytes, device_bytes = torch.cuda.mem_get_info()
    names = (options.side, options.base)
    return {
        "wanted_pairs": options.pairs,
        "pairs": len(pairs),
        "first": firsts,
        "steps": {
            side: {kind: [getattr(each[side], kind) for each in pairs] for kind in TIMES}
            for side in names
        },
        "driver": {
            side: {
                kind: [getattr(each[side], f"driver_{kind}") for each in pairs]
                for kind in ("ns", "calls")
            }
            for side in names
        },
        "has_same_losses": turns.losses_differ == 0,
        "free_bytes": free_bytes,
        "device_bytes": device_bytes,
        "seconds": round(time.monotonic() - _BEGAN, 1),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program", choices=TURNS)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("base", choices=SIDES)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--warming", type=int, default=20, help="pairs before those (20)")
    parser.add_argument("--seconds", type=float, default=0, help="to be ended after (0: never)")
    parser.add_argument("--tiny", action="store_true", help="sizes for the stand-in")
    options = parser.parse_args()
    if options.side == options.base:
        parser.error("both sides are the same; `again` is the default allocator once more")
    print(json.dumps(measure(options)), flush=True)


if __name__ == "__main__":
    main()
    end_process()
