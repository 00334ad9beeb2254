"""Programs that leave a lake with views, views in use, deferred frees and freed memory."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gmlake
from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


def busy_lake(
    policy: str = "stitch", seed: int = 1, requests: int = 3000, max_events: int = 100_000
) -> gmlake.Lake:
    """Return a lake that has served a random program; its events are kept from the middle on."""
    chance = random.Random(seed)  # noqa: S311
    lake = gmlake.Lake("sim", policy, capacity="1GiB")
    live: list[_core.Block] = []
    for number in range(requests):
        if number == requests // 3:
            lake.keep_history(max_events)
        if number == requests // 2:
            lake.trim()
        if live and chance.random() < 0.47:
            lake.free(live.pop(chance.randrange(len(live))))
            continue
        size = chance.choice([512, 40_000, 700_000, 3 * MIB, 30 * MIB, 90 * MIB])
        try:
            live.append(lake.allocate(chance.randrange(size // 2, size), stream=number % 2))
        except gmlake.OutOfMemoryError:
            for block in live[::2]:
                lake.free(block)
            del live[::2]
    return lake


Held = list[tuple[int, int, int]]
"""Segments as the viewer has them: (begin, end, stream), in address order."""


def unwind(  # noqa: C901, PLR0912 (a case for each action)
    segments: list[dict[str, Any]], events: list[dict[str, Any]]
) -> Iterator[str]:
    """Go back through the events as the viewer does, and yield what it would stumble over."""
    held = sorted((s["address"], s["address"] + s["total_size"], s["stream"]) for s in segments)
    blocks = {
        b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] != "inactive"
    }
    yield from _outside(held, blocks, "at the end")
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        where = f"before event {number}, {event['action']}"
        address, size = event.get("addr", 0), event["size"]
        match event["action"]:
            case "alloc":
                if address not in blocks:
                    yield f"{where}: not live"
                blocks.pop(address, None)
            case "free_completed":
                if address in blocks:
                    yield f"{where}: live twice"
                blocks[address] = size
            case "free_requested" if address not in blocks:
                yield f"{where}: not live"
            case "segment_alloc":
                if not any(place[:2] == (address, address + size) for place in held):
                    yield f"{where}: no such segment"
                held = [place for place in held if place[0] != address]
            case "segment_free":
                held = sorted([*held, (address, address + size, event["stream"])])
            case "segment_unmap":
                held = _joined(held, (address, address + size, event["stream"]))
            case "segment_map":
                around = [one for one in held if one[0] <= address and address + size <= one[1]]
                if not around:
                    yield f"{where}: in no segment"
                held = _without(held, address, address + size)
        if any(one[1] > other[0] for one, other in pairwise(held)):
            yield f"{where}: segments overlap"
        if number % 16 == 0:
            yield from _outside(held, blocks, where)


def _joined(held: Held, place: tuple[int, int, int]) -> Held:
    """Add a segment, joined with its neighbours of the same stream."""
    begin, end, stream = place
    before = [other for other in held if other[1:] == (begin, stream)]
    behind = [other for other in held if other[::2] == (end, stream)]
    others = [other for other in held if other not in before + behind]
    first = before[0][0] if before else begin
    last = behind[0][1] if behind else end
    return sorted([*others, (first, last, stream)])


def _without(held: Held, begin: int, end: int) -> Held:
    """Cut a range out of the first segment that has all of it."""
    result: Held = []
    is_done = False
    for place in held:
        if is_done or not (place[0] <= begin and end <= place[1]):
            result.append(place)
            continue
        is_done = True
        parts = ((place[0], begin), (end, place[1]))
        result += [(low, high, place[2]) for low, high in parts if low < high]
    return result


def _outside(held: Held, blocks: dict[int, int], where: str) -> Iterator[str]:
    place = -1
    for address in sorted(blocks):
        while place + 1 < len(held) and held[place + 1][0] <= address:
            place += 1
        if place < 0 or address >= held[place][1]:
            yield f"{where}: the block at {address:#x} is in no segment"
