"""Programs of several streams that gmlake serves; prints what was seen as JSON.

The first argument names one of the functions below, the rest are its own.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import random
import sys
from typing import Any

import torch
from examples.two_streams import Training, take_turns
from tests.standin.training import Trainer

import gmlake
from gmlake.pytorch import Session
from gmlake.standin import control

MIB = 1 << 20
ORDER_CALLS = ("event_", "stream_", "device_synchronize")
Seen = dict[str, Any]


def counted(region: Session) -> dict[str, int]:
    """Return what only rises: calls that take or give memory, calls that order, and borrowing."""
    stats = region.stats()
    calls = stats["driver_calls"]
    order = sum(count for name, count in calls.items() if name.startswith(ORDER_CALLS))
    return {
        "waits": stats["cross_stream_waits"],
        "borrowed": stats["borrowed_bytes"],
        "memory_calls": sum(calls.values()) - order,
        "order_calls": order,
    }


def turns(region: Session, steps: str = "32") -> Seen:
    """Train two models in turn on two streams; count what each step did."""
    first, second = (Training(layers=8, width=512, rows=4096) for _ in range(2))
    way = first.forward()
    while first.advance(way):
        pass
    before, seen = counted(region), []
    for _ in range(int(steps)):
        take_turns(second, first)
        take_turns(first, second)
        after = counted(region)
        seen.append({name: after[name] - before[name] for name in after})
        before = after
    stats = region.stats()
    return {
        "steps": seen,
        "live": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "deferred": stats["deferred_free_bytes"],
    }


def train_on_one_stream() -> dict[str, int]:
    """Train on the current stream; return the calls about events that whoever made."""
    trainer = Trainer(torch.bfloat16)
    for _ in range(6):
        trainer.step()
    return {
        name: n for name, n in control.calls().items() if "Event" in name and "Create" not in name
    }


# ---- real bytes ----------------------------------------------------------------------------------

BIG = 8 * MIB


class Patterns:
    """Host memory to copy from, every buffer of it full of a number of its own."""

    def __init__(self, count: int, size: int) -> None:
        """Fill them."""
        self.buffers = [
            torch.full((size,), number + 1, dtype=torch.uint8).pin_memory()
            for number in range(count)
        ]


class Reader:
    """Copies back what tensors hold, now or when their streams come to it, and compares then."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.expected: list[tuple[torch.Tensor, int]] = []
        self.wrong = 0
        self.compared = 0

    def read(self, tensor: torch.Tensor, number: int) -> None:
        """Queue copies of the tensor's start, middle and end on the current stream."""
        size = tensor.numel()
        for offset in {0, size // 2, size - min(size, 4096)}:
            part = tensor[offset : offset + 4096]
            target = torch.zeros(part.shape, dtype=torch.uint8).pin_memory()
            target.copy_(part, non_blocking=True)
            self.expected.append((target, number))

    def compare(self) -> None:
        """Wait for everything and compare."""
        torch.cuda.synchronize()
        for target, number in self.expected:
            self.wrong += bool((target != number).any())
            self.compared += 1
        self.expected.clear()


def lend(region: Session) -> Seen:
    """Hand a block from one stream to another while the first one's copy from it is pending."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    patterns, reader = Patterns(2, 2 * BIG), Reader()
    with control.paced("manual"):
        with torch.cuda.stream(first):
            lent = torch.empty(2 * BIG, dtype=torch.uint8, device="cuda")
            lent.copy_(patterns.buffers[0], non_blocking=True)
            reader.read(lent, 1)
        reserved = torch.cuda.memory_reserved()
        del lent
        with torch.cuda.stream(second):
            got = torch.empty(2 * BIG, dtype=torch.uint8, device="cuda")
            got.copy_(patterns.buffers[1], non_blocking=True)
            reader.read(got, 2)
        grown = torch.cuda.memory_reserved() - reserved
        # The second stream may run ahead as far as it can.
        control.advance(second.cuda_stream, control.pending(second.cuda_stream))
        is_pending = control.pending(second.cuda_stream) > 0
        reader.compare()
    return {"wrong": reader.wrong, "grown": grown, "is_pending": is_pending, **counted(region)}


def read_elsewhere(
    owner: torch.cuda.Stream, reading: torch.cuda.Stream, patterns: Patterns, reader: Reader
) -> torch.Tensor:
    """Return a block that one stream fills and the other still reads."""
    with torch.cuda.stream(owner):
        block = torch.empty(2 * BIG, dtype=torch.uint8, device="cuda")
        block.copy_(patterns.buffers[0], non_blocking=True)
    reading.wait_stream(owner)
    with torch.cuda.stream(reading):
        reader.read(block, 1)
    return block


def recorded(region: Session) -> Seen:
    """Free a block that a third stream still reads; another stream is short of memory then."""
    owner, reading, asking = (torch.cuda.Stream() for _ in range(3))
    patterns, reader = Patterns(2, 2 * BIG), Reader()
    with control.paced("manual"):
        block = read_elsewhere(owner, reading, patterns, reader)
        block.record_stream(reading)
        del block
        deferred = region.stats()["deferred_free_bytes"]
        control.advance(owner.cuda_stream, control.pending(owner.cuda_stream))
        for stream in (asking, owner):
            with torch.cuda.stream(stream):
                got = torch.empty(2 * BIG, dtype=torch.uint8, device="cuda")
                got.copy_(patterns.buffers[1], non_blocking=True)
                reader.read(got, 2)
                control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))
            del got
        reader.compare()
    torch.empty(1 * MIB, dtype=torch.uint8, device="cuda")
    return {
        "wrong": reader.wrong,
        "deferred": deferred,
        "deferred_later": region.stats()["deferred_free_bytes"],
    }


class Stress:
    """Tensors that come and go on several streams, filled when they come and read when they go."""

    def __init__(self, seed: int, streams: list[torch.cuda.Stream], patterns: Patterns) -> None:
        """Begin with nothing."""
        self.draw = random.Random(seed)  # noqa: S311 - no secret, only repeatable
        self.streams, self.patterns, self.reader = streams, patterns, Reader()
        self.live: list[tuple[torch.cuda.Stream, torch.Tensor, int]] = []
        self.owed: list[tuple[torch.cuda.Stream, torch.cuda.Stream]] = []

    def step(self) -> None:
        """Make a tensor or let one go, then let a stream come further."""
        if self.live and self.draw.random() < len(self.live) / 16:
            self._drop(*self.live.pop(self.draw.randrange(len(self.live))))
        else:
            self._make(self.draw.choice(self.streams))
        stream = self.draw.choice(self.streams).cuda_stream
        control.advance(stream, min(self.draw.randint(0, 6), control.pending(stream)))

    def _make(self, stream: torch.cuda.Stream) -> None:
        size = self.draw.choice((self.draw.randint(1, MIB), self.draw.randint(MIB, BIG)))
        number = self.draw.randrange(len(self.patterns.buffers))
        for owner, reading in self.owed:
            owner.wait_stream(reading)
        self.owed.clear()
        with torch.cuda.stream(stream):
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
            tensor.copy_(self.patterns.buffers[number][:size], non_blocking=True)
        self.live.append((stream, tensor, number + 1))

    def _drop(self, stream: torch.cuda.Stream, tensor: torch.Tensor, number: int) -> None:
        """Read it on its own stream or another, which record_stream or its own stream heeds."""
        reading = self.draw.choice([stream, stream, *self.streams])
        if reading != stream:
            reading.wait_stream(stream)
        with torch.cuda.stream(reading):
            self.reader.read(tensor, number)
        if reading != stream and self.draw.random() < 1 / 2:
            tensor.record_stream(reading)
        elif reading != stream:
            self.owed.append((stream, reading))

    def run(self, rounds: int) -> None:
        """Take many steps; wait for everything now and then."""
        for _ in range(rounds):
            for _ in range(60):
                self.step()
            self.reader.compare()
            if self.draw.random() < 1 / 8:
                torch.cuda.empty_cache()
        while self.live:
            self._drop(*self.live.pop())
        self.reader.compare()


def stress(region: Session, pace: str, seed: str) -> Seen:
    """One thread, four streams."""
    control.set_pace(pace)
    one = Stress(int(seed), [torch.cuda.Stream() for _ in range(4)], Patterns(32, BIG))
    one.run(25)
    control.set_pace("lag")
    return {"wrong": one.reader.wrong, "compared": one.reader.compared, **counted(region)}


def capture(region: Session) -> Seen:
    """Ask for memory on one stream while another, which holds some idle, captures a graph."""
    capturing, asking = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(capturing):
        static = torch.zeros(1000, device="cuda")
        torch.empty(2 * BIG, dtype=torch.uint8, device="cuda").zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with control.paced("manual"):
        with torch.cuda.stream(capturing):
            torch.empty(BIG, dtype=torch.uint8, device="cuda").zero_()
        before = counted(region)["order_calls"]
        with torch.cuda.graph(graph, stream=capturing, capture_error_mode="relaxed"):
            inside = torch.empty(1000, device="cuda").copy_(static)
            with torch.cuda.stream(asking):
                eager = torch.empty(2 * BIG, dtype=torch.uint8, device="cuda")
        recorded_calls = counted(region)["order_calls"] - before
    static.copy_(torch.arange(1000.0))
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    is_right = torch.equal(inside.cpu(), torch.arange(1000.0))
    calls = region.stats()["driver_calls"]
    del eager, inside
    return {
        "is_right": is_right,
        "order_calls": recorded_calls,
        "records": calls["event_record_all"],
    }


def main() -> None:
    """Run the function that the first argument names."""
    name, *arguments = sys.argv[1:]
    if name == "one_stream_alone":
        json.dump({"by_all": train_on_one_stream()}, sys.stdout)
        return
    region = gmlake.enable()
    seen = globals()[name](region, *arguments)
    json.dump({**seen, "misuses": control.misuses()}, sys.stdout)


if __name__ == "__main__":
    main()
