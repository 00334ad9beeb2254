"""Four programs as PyTorch would have recorded them, each with something to see in it."""

from __future__ import annotations

from typing import Any

from recording import BASE, MIB, block, segment, snapshot

PROJECT = "/home/me/project"
LIBRARY = {"name": "forward", "filename": "/env/lib/python3.11/site-packages/torch/nn/l.py"}


class Scenario:
    """Events with call paths, a millisecond from each to the next."""

    def __init__(self) -> None:
        """Begin with none."""
        self.events: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self._sizes: dict[int, int] = {}

    def add(self, action: str, size: int, at: int = 0, line: str = "", **more: Any) -> None:
        """Add an event; line: "function file:number", the user's own."""
        frames = []
        if line:
            function, _, place = line.partition(" ")
            file, _, number = place.partition(":")
            own = {"name": function, "filename": f"{PROJECT}/{file}", "line": int(number)}
            frames = [{**LIBRARY, "line": 134}, own]
        place_of = {} if action == "oom" else {"addr": at}
        self.events.append(
            {"action": action, "size": size, "stream": 0, "frames": frames, **place_of, **more}
            | {"time_us": 1_000_000 + 1000 * len(self.events)}
        )

    def alloc(self, at: int, size: int, line: str) -> None:
        """Add an allocation."""
        self._sizes[at] = size
        self.add("alloc", size, at, line)

    def free(self, *places: int) -> None:
        """Add the end of each block."""
        for at in places:
            size = self._sizes.pop(at)
            self.add("free_requested", size, at)
            self.add("free_completed", size, at)

    def step(self, number: int) -> None:
        """End a step, as the profiler marks it."""
        name = f"ProfilerStep#{number}"
        time = 1_000_000 + 1000 * len(self.events)
        self.annotations.append({"stage": "END", "name": name, "device": 0, "time_us": time})

    def snapshot(self, segments: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the file."""
        return {**snapshot(self.events, segments), "external_annotations": self.annotations}


def fragmented() -> dict[str, Any]:
    """Four small blocks in the middle of four segments, a refusal, and then everything is freed."""
    scenario = Scenario()
    bases = [BASE + number * 1024 * MIB for number in range(4)]
    for base in bases:
        scenario.add("segment_alloc", 300 * MIB, base)
        scenario.alloc(base, 140 * MIB, "load data.py:7")
        scenario.alloc(base + 140 * MIB, 20 * MIB, "remember model.py:12")
        scenario.alloc(base + 160 * MIB, 140 * MIB, "load data.py:7")
    for base in bases:
        scenario.free(base, base + 160 * MIB)
    scenario.add("oom", 500 * MIB, line="step train.py:31", device_free=212 * MIB)
    for base in bases:
        scenario.free(base + 140 * MIB)
        scenario.add("segment_free", 300 * MIB, base)
    return scenario.snapshot([])


def peaked() -> dict[str, Any]:
    """A long start-up, three steps, and the second is the largest; nothing is refused."""
    scenario = Scenario()
    scenario.add("segment_alloc", 600 * MIB, BASE)
    for _ in range(60):
        scenario.alloc(BASE, 10 * MIB, "warm data.py:3")
        scenario.free(BASE)
    scenario.alloc(BASE, 100 * MIB, "build model.py:5")
    scenario.step(0)
    for number, size in enumerate([200 * MIB, 400 * MIB, 300 * MIB], start=1):
        scenario.alloc(BASE + 100 * MIB, size, "step train.py:31")
        scenario.free(BASE + 100 * MIB)
        scenario.step(number)
    kept = [block(BASE, 100 * MIB, 100 * MIB), block(BASE + 100 * MIB, 500 * MIB)]
    return scenario.snapshot([segment(BASE, 600 * MIB, kept)])


def leaking() -> dict[str, Any]:
    """Each step appends a result to a list, in 12 segments at last."""
    scenario, blocks = Scenario(), []
    for number in range(12):
        base = BASE + number * 20 * MIB
        scenario.add("segment_alloc", 20 * MIB, base)
        scenario.alloc(base, 15 * MIB, "step train.py:40")
        blocks.append(block(base, 15 * MIB, 15 * MIB))
        scenario.step(number)
    held = [
        segment(one["address"], 20 * MIB, [one, block(one["address"] + 15 * MIB, 5 * MIB)])
        for one in blocks
    ]
    return scenario.snapshot(held)


def expandable() -> dict[str, Any]:
    """One segment that grows by parts, of which the middle is given back before a refusal."""
    scenario = Scenario()
    for number in range(5):
        scenario.add("segment_map", 20 * MIB, BASE + number * 20 * MIB)
    scenario.alloc(BASE, 30 * MIB, "build model.py:5")
    scenario.alloc(BASE + 30 * MIB, 40 * MIB, "load data.py:7")
    scenario.alloc(BASE + 70 * MIB, 10 * MIB, "remember model.py:12")
    scenario.free(BASE + 30 * MIB)
    scenario.add("segment_unmap", 20 * MIB, BASE + 40 * MIB)
    scenario.add("oom", 40 * MIB, line="step train.py:31", device_free=5 * MIB)
    first = [block(BASE, 30 * MIB, 30 * MIB), block(BASE + 30 * MIB, 10 * MIB)]
    at = BASE + 60 * MIB
    second = [block(at, 10 * MIB), block(at + 10 * MIB, 10 * MIB, 10 * MIB)]
    second.append(block(at + 20 * MIB, 20 * MIB))
    return scenario.snapshot(
        [
            segment(BASE, 40 * MIB, first, is_expandable=True),
            segment(at, 40 * MIB, second, is_expandable=True),
        ]
    )
