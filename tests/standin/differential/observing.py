"""Checks what observers are told of memory: PyTorch's history, its snapshot, and pools."""

# mypy: allow-untyped-calls
# ruff: noqa: SLF001 (the history has private names only)

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import torch

from gmlake.standin import control

MOST_EVENTS = 100_000
COMES, GOES = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
MADE = ("cuMemCreate", "cuMemImportFromShareableHandle")


class Ranges:
    """A set of addresses as sorted ranges that neither overlap nor touch."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        """Begin with these."""
        self.ranges: list[tuple[int, int]] = []
        for begin, end in sorted(ranges):
            if self.ranges and self.ranges[-1][1] == begin:
                self.ranges[-1] = (self.ranges[-1][0], end)
            elif end > begin:
                self.ranges.append((begin, end))

    def covers(self, begin: int, end: int) -> bool:
        """Whether all of a range is in it."""
        at = bisect_right(self.ranges, (begin, 1 << 64)) - 1
        return at >= 0 and end <= self.ranges[at][1]

    def touches(self, begin: int, end: int) -> bool:
        """Whether any of a range is in it."""
        return any(first < end and begin < last for first, last in self.ranges)

    def plus(self, begin: int, end: int) -> Ranges:
        """Return it with one more range."""
        return Ranges([*self.ranges, (begin, end)])

    def minus(self, begin: int, end: int) -> Ranges:
        """Return it without a range."""
        rest = []
        for first, last in self.ranges:
            rest += [(first, min(last, begin)), (max(first, end), last)]
        return Ranges([(first, last) for first, last in rest if first < last])


def replay(
    events: list[dict[str, Any]], segments: Ranges, live: dict[int, int]
) -> tuple[Ranges, str]:
    """Return what events say is there after them, and the first that cannot be.

    live: sizes of blocks by their addresses, which are brought up to date.
    """
    for number, event in enumerate(events):
        action, begin, size = event["action"], event.get("addr", 0), event.get("size", 0)
        where = f"event {number}, {action} of {size} at {begin:#x}"
        if action in COMES:
            if segments.touches(begin, begin + size):
                return segments, f"{where}: it is there already"
            segments = segments.plus(begin, begin + size)
        elif action in GOES:
            if not segments.covers(begin, begin + size):
                return segments, f"{where}: it is not there"
            if any(begin < at + held and at < begin + size for at, held in live.items()):
                return segments, f"{where}: a block lives there"
            segments = segments.minus(begin, begin + size)
        elif action == "alloc":
            if not segments.covers(begin, begin + size):
                return segments, f"{where}: no segment was told there"
            live[begin] = size
        elif action == "free_completed":
            if begin not in live:
                return segments, f"{where}: no block lives there"
            del live[begin]
    return segments, ""


class _State:
    """What a snapshot says of one device."""

    def __init__(self, found: dict[str, Any], device: int) -> None:
        segments = [each for each in found["segments"] if each["device"] == device]
        self.segments = Ranges(
            [(each["address"], each["address"] + each["total_size"]) for each in segments]
        )
        self.live = {
            block["address"]: block.get("requested_size", block["size"])
            for each in segments
            for block in each["blocks"]
            if block["state"] != "inactive"
        }
        traces = found["device_traces"]
        events = traces[device] if device < len(traces) else []
        self.events = [each for each in events if each["action"] != "snapshot"]


class History:
    """PyTorch's history of memory, compared at each look with the snapshot and the driver."""

    def __init__(self) -> None:
        """Begin to record."""
        torch.cuda.memory._record_memory_history(
            max_entries=MOST_EVENTS, stacks="python", context=None, clear_history=True
        )
        self.devices = torch.cuda.device_count()
        found = torch.cuda.memory._snapshot()
        self.before = [_State(found, i) for i in range(self.devices)]
        self.calls = control.calls()

    def look(self) -> str:
        """Return what does not fit since the last look, or nothing."""
        calls = control.calls()
        made = calls - self.calls
        found = torch.cuda.memory._snapshot()
        actions = set()
        for device, before in enumerate(self.before):
            now = _State(found, device)
            events = now.events[len(before.events) :]
            actions |= {event["action"] for event in events}
            told, problem = replay(events, before.segments, dict(before.live))
            if problem:
                return problem
            if told.ranges != now.segments.ranges:
                return f"told: {_differ(told, now.segments)} (of the snapshot)"
            self.before[device] = now
        self.calls = calls
        if any(made[name] for name in MADE) and not actions & set(COMES):
            return "the driver made memory, and no segment was told to have come"
        if made["cuMemRelease"] and not actions & set(GOES):
            return "memory was released, and no segment was told to have gone"
        return ""

    @staticmethod
    def end() -> None:
        """Record no more."""
        torch.cuda.memory._record_memory_history(None)


def _differ(told: Ranges, shown: Ranges) -> str:
    """Return the first range that one has and the other has not."""
    mine, others = set(told.ranges), set(shown.ranges)
    (begin, end) = min(mine ^ others)
    return f"{end - begin} bytes at {begin:#x} are only {'told' if (begin, end) in mine else 'shown'}"


def check_pools(wanted: dict[int, Any], freed: dict[int, Any]) -> str:
    """Return the first address that is not in the pool it must be in, or nothing.

    freed: what a graph's pool keeps without a tensor, which need not be shown.
    """
    segments = sorted(torch.cuda.memory_snapshot(), key=lambda each: int(each["address"]))
    begins = [each["address"] for each in segments]
    for address, pool in (freed | wanted).items():
        at = bisect_right(begins, address) - 1
        if at < 0 or address >= begins[at] + segments[at]["total_size"]:
            if address in wanted:
                return f"{address:#x} lies in no segment"
            continue
        if tuple(segments[at]["segment_pool_id"]) != tuple(pool):
            return f"memory of pool {pool} lies in one of {segments[at]['segment_pool_id']}"
    return ""
