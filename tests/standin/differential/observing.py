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
WAITS = "active_pending_free"


class Ranges:
    """A set of addresses as sorted ranges that neither overlap nor touch."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.ranges: list[tuple[int, int]] = []
        for begin, end in sorted(ranges):
            if self.ranges and self.ranges[-1][1] == begin:
                self.ranges[-1] = (self.ranges[-1][0], end)
            elif end > begin:
                self.ranges.append((begin, end))

    def covers(self, begin: int, end: int) -> bool:
        at = bisect_right(self.ranges, (begin, 1 << 64)) - 1
        return at >= 0 and end <= self.ranges[at][1]

    def touches(self, begin: int, end: int) -> bool:
        return any(first < end and begin < last for first, last in self.ranges)

    def size(self) -> int:
        return sum(end - begin for begin, end in self.ranges)

    def plus(self, begin: int, end: int) -> Ranges:
        return Ranges([*self.ranges, (begin, end)])

    def minus(self, begin: int, end: int) -> Ranges:
        rest = []
        for first, last in self.ranges:
            rest += [(first, min(last, begin)), (max(first, end), last)]
        return Ranges([(first, last) for first, last in rest if first < last])


class Told:
    """What the events of a device say is there.

    live: sizes of blocks by their addresses. is_exact: whether the segments were followed from when
    there were none. Stitched blocks lie in views, which are not segments: they are told at other
    addresses than the memory under them, and only its amount can be compared from then on. late:
    the first difference of blocks, which is reported where there is no other.
    """

    def __init__(self, found: dict[str, Any], device: int, *, has_elastic: bool) -> None:
        self.device, self.has_elastic = device, has_elastic
        self.segments, _ = shown(found, device)
        self.live = {
            block["address"]: block.get("requested_size", block["size"])
            for each in found["segments"]
            for block in each["blocks"]
            if each["device"] == device and block["state"] != "inactive"
        }
        self.seen = len(_events(found, device))
        self.bytes = self.segments.size()
        self.is_exact = not self.bytes
        self.is_stitched = self.may_sleep = False
        self.late = ""

    def follow(self, found: dict[str, Any], *, sleeps: bool = False) -> tuple[set[str], str]:
        """Return the new actions, and the first thing that cannot be or is shown otherwise.

        sleeps: the memory of a region is away, until it wakes.
        """
        events = _events(found, self.device)[self.seen :]
        self.seen += len(events)
        for number, event in enumerate(events):
            if problem := self._take(event):
                at, size = event["addr"], event["size"]
                return set(), f"event {number}, {event['action']} of {size} at {at:#x}: {problem}"
        if sleeps:
            return {event["action"] for event in events}, ""
        segments, live = shown(found, self.device)
        if self.bytes != segments.size():
            return set(), f"{self.bytes} bytes of segments were told, {segments.size()} are shown"
        if self.is_exact and not self.is_stitched and self.segments.ranges != segments.ranges:
            return set(), f"of segments, {_differ(self.segments, segments)}"
        odd = [] if self.has_elastic else sorted(live.keys() ^ self.live.keys())
        waiting = [at for at in odd if live.get(at) == WAITS]
        if waiting and not self.late:
            self.late = f"the block at {waiting[0]:#x} waits, and free_completed was told"
        elif odd and not self.late:
            which = "told" if odd[0] in self.live else "shown"
            self.late = f"the block at {odd[0]:#x} is only {which} to live"
        return {event["action"] for event in events}, ""

    def _take(self, event: dict[str, Any]) -> str:
        if "addr" not in event:
            return ""
        action, begin, size = event["action"], event["addr"], event["size"]
        end = begin + size
        if action in COMES:
            if self.is_exact and self.segments.touches(begin, end):
                return "it is there already"
            self.segments, self.bytes = self.segments.plus(begin, end), self.bytes + size
        elif action in GOES:
            if self.is_exact and not self.segments.covers(begin, end):
                return "it is not there"
            lives = any(begin < at + held and at < end for at, held in self.live.items())
            if lives and not self.may_sleep:
                return "a block lives there"
            self.segments, self.bytes = self.segments.minus(begin, end), self.bytes - size
        elif action == "alloc":
            self.is_stitched |= not self.segments.covers(begin, end)
            self.live[begin] = size
        elif action == "free_completed" and self.live.pop(begin, None) is None:
            return "no block lives there"
        return ""


def shown(found: dict[str, Any], device: int) -> tuple[Ranges, dict[int, str]]:
    """Return the segments of a device in a snapshot, and the states of its blocks in use."""
    segments = [each for each in found["segments"] if each["device"] == device]
    live = {
        block["address"]: block["state"]
        for each in segments
        for block in each["blocks"]
        if block["state"] != "inactive"
    }
    ranges = [(each["address"], each["address"] + each["total_size"]) for each in segments]
    return Ranges(ranges), live


def _events(found: dict[str, Any], device: int) -> list[dict[str, Any]]:
    traces = found["device_traces"]
    events = traces[device] if device < len(traces) else []
    return [each for each in events if each["action"] != "snapshot"]


class History:
    """PyTorch's history of memory, compared at each look with the snapshot and the driver."""

    def __init__(self, *, may_stitch: bool, has_elastic: bool) -> None:
        torch.cuda.memory._record_memory_history(
            max_entries=MOST_EVENTS, stacks="python", context=None, clear_history=True
        )
        self.may_stitch = may_stitch
        self.sleeps = False
        found = torch.cuda.memory._snapshot()
        devices = range(torch.cuda.device_count())
        self.told = [Told(found, i, has_elastic=has_elastic) for i in devices]
        self.calls = control.calls()

    def sleep(self, regions: set[str]) -> None:
        """Note which regions sleep: memory goes from under their tensors, and comes back."""
        self.sleeps = bool(regions)
        for told in self.told:
            told.may_sleep |= self.sleeps

    def look(self) -> str:
        """Return what does not fit since the last look, or nothing."""
        calls = control.calls()
        made = calls - self.calls
        found = torch.cuda.memory._snapshot()
        actions = set()
        for told in self.told:
            more, problem = told.follow(found, sleeps=self.sleeps)
            actions |= more
            if problem or (told.is_stitched and not self.may_stitch):
                return problem or "a block lies in no segment"
        self.calls = calls
        # What was tried and taken back is not told: both calls between two looks say nothing.
        if made["cuMemCreate"] and not made["cuMemRelease"] and not actions & set(COMES):
            return "the driver made memory, and no segment was told to have come"
        is_gone = made["cuMemRelease"] and made["cuMemUnmap"] and not made["cuMemCreate"]
        if is_gone and not actions & set(GOES):
            return "memory was released, and no segment was told to have gone"
        return ""

    def end(self) -> str:
        """Record no more; return what else did not fit."""
        torch.cuda.memory._record_memory_history(None)
        return next((told.late for told in self.told if told.late), "")


def _differ(told: Ranges, shown: Ranges) -> str:
    """Return the first range that one has and the other has not."""
    mine, others = set(told.ranges), set(shown.ranges)
    (begin, end) = min(mine ^ others)
    return (
        f"{end - begin} bytes at {begin:#x} are only {'told' if (begin, end) in mine else 'shown'}"
    )


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
