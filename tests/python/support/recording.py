"""Makes snapshots in PyTorch's format: by hand, event by event, or by recording a Lake."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import gmlake
from gmlake.lake import Block
from gmlake.trace import REQUEST, Kind, Trace
from validating import Notes, Reading

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.pictures.figures import Report

F = TypeVar("F")

KIB = 1 << 10
MIB = 1 << 20
BASE = 0x7F00_0000_0000
FAR = BASE << 1


def event(action: str, addr: int, size: Any, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1, **more}


def alloc(addr: int, size: Any, **more: Any) -> dict[str, Any]:
    return event("alloc", addr, size, **more)


def free(addr: int, size: int, **more: Any) -> dict[str, Any]:
    return event("free_completed", addr, size, **more)


def block(addr: int, size: int, requested: int | None = None) -> dict[str, Any]:
    """A block of a segment; inactive unless a requested size is given."""
    return {
        "address": addr,
        "size": size,
        "requested_size": 0 if requested is None else requested,
        "state": "inactive" if requested is None else "active_allocated",
        "frames": [],
    }


def segment(addr: int, size: int, blocks: list[Any], **more: Any) -> dict[str, Any]:
    kind = "small" if size == 2 * MIB else "large"
    return {
        "device": 0,
        "address": addr,
        "total_size": size,
        "stream": 0,
        "segment_type": kind,
        "blocks": blocks,
        **more,
    }


def snapshot(
    events: list[dict[str, Any]], segments: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {"segments": segments or [], "device_traces": [events], "allocator_settings": {}}


def load(folder: Path, document: object) -> gmlake.Snapshot:
    """What is read of a document in a file."""
    path = folder / "scenario.pickle"
    path.write_bytes(pickle.dumps(document, protocol=4))
    return gmlake.load(path)


def figure(report: Report, kind: type[F]) -> F:
    """The first figure of a kind."""
    return next(one for one in report.figures if isinstance(one, kind))


class Recorder:
    """Records what a Lake with the policy `caching` does, as PyTorch records its own allocator."""

    def __init__(self, lake: gmlake.Lake) -> None:
        self.lake = lake
        self.events: list[dict[str, Any]] = []
        self.held = self._segments()

    def _segments(self) -> dict[int, tuple[int, int]]:
        return {r["address"]: (r["size"], r["stream"]) for r in self.lake.spans()}

    def _note_segments(self) -> None:
        now = self._segments()
        for address in self.held.keys() - now.keys():
            self._add("segment_free", address, *self.held[address])
        for address in now.keys() - self.held.keys():
            self._add("segment_alloc", address, *now[address])
        self.held = now

    def _add(self, action: str, address: int, size: int, stream: int) -> None:
        self.events.append(event(action, address, size, stream=stream))

    def allocate(self, size: int, stream: int = 0) -> Block:
        served = self.lake.allocate(size, stream)
        self._note_segments()
        self._add("alloc", served.address, size, stream)
        return served

    def free(self, served: Block) -> None:
        for action in ("free_requested", "free_completed"):
            self._add(action, served.address, served.requested_size, served.stream)
        self.lake.free(served)

    def trim(self) -> None:
        self.lake.trim()
        self._note_segments()

    def snapshot(self) -> dict[str, Any]:
        segments = []
        for span in self.lake.spans():
            blocks = [
                block(address, size, requested if used else None)
                for address, size, requested, used in span["ranges"]
            ]
            kind = "small" if span["is_small"] else "large"
            segments.append(
                segment(span["address"], span["size"], blocks, stream=span["stream"])
                | {"segment_type": kind}
            )
        return snapshot(self.events, segments)


class Noter(Recorder):
    """Records a Lake, what it refuses, and its statistics, as benchmarks/workloads does."""

    def __init__(self, lake: gmlake.Lake, capacity: int) -> None:
        super().__init__(lake)
        self.capacity = capacity
        self.readings: list[Reading] = []

    def read(self, *, is_trim: bool = False) -> None:
        self.readings.append(Reading(len(self.events), self.lake.torch_stats(), is_trim))

    def trim(self) -> None:
        self.read(is_trim=True)
        super().trim()

    def try_to_allocate(self, size: int, stream: int) -> Block | None:
        try:
            return self.allocate(size, stream)
        except gmlake.OutOfMemoryError:
            self._note_segments()
            self.events.append({"action": "oom", "size": size, "stream": stream, "device_free": 0})
            return None

    def notes(self) -> Notes:
        self.read()
        return Notes(tuple(self.readings), self.capacity)


class ExpandableNoter(Noter):
    """Records the policy `expandable`: what it holds grows and shrinks in place."""

    def _note_segments(self) -> None:
        now = self.lake.stats()["reserved_bytes"]
        before = sum(size for _, (size, _) in self.held.items())
        self.held = {0: (now, 0)}
        if now != before:
            action = "segment_map" if now > before else "segment_unmap"
            self._add(action, FAR + min(now, before), abs(now - before), 0)

    def snapshot(self) -> dict[str, Any]:
        held = self.lake.stats()["reserved_bytes"]
        final = segment(FAR, held, [], is_expandable=True)
        return snapshot(self.events, [final] if held else [])


def note_program(
    steps: list[tuple[int, int]], policy: str, capacity: int = 160 * MIB, **knobs: Any
) -> tuple[Trace, Notes]:
    """Record a random program, each step of it told by a number and a size."""
    with gmlake.Lake("sim", policy, capacity, **knobs) as lake:
        noter = (Noter if policy == "caching" else ExpandableNoter)(lake, capacity)
        live: list[Block] = []
        for choice, size in steps:
            if choice % 10 == 9:
                noter.trim()
            elif choice % 10 == 8:
                noter.read()
            elif choice % 10 == 7:
                Recorder.trim(noter)  # as a library does, unseen
            elif live and choice % 2:
                noter.free(live.pop(choice // 2 % len(live)))
            else:
                served = noter.try_to_allocate(size, choice // 2 % 3)
                live += [served] if served else []
        notes = replace(noter.notes(), limit_bytes=knobs.get("memory_limit"))
        return gmlake.load(noter.snapshot()).devices[0].trace, notes


def pairs(count: int = 50) -> Trace:
    """A trace of blocks, each freed at once."""
    requests = np.zeros(2 * count, REQUEST)
    requests["kind"] = [Kind.ALLOC, Kind.FREE] * count
    requests["id"] = np.repeat(np.arange(count), 2)
    requests["size_bytes"][::2] = 3 << 20
    requests["address"] = 1 << 30
    requests["time_ns"] = 1_000_000 * np.arange(1, 2 * count + 1)
    return Trace(requests)
