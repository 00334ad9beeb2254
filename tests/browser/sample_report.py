"""A page with one picture of each kind, from made-up figures; every name can carry an ending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gmlake.pictures.figures import (
    CATEGORIES,
    AddressMap,
    Block,
    Blocks,
    Mark,
    Packing,
    Piece,
    Policies,
    Report,
    Timeline,
    View,
)
from gmlake.trace import REQUEST, Kind, Trace

if TYPE_CHECKING:
    from gmlake.pictures.figures import Figure

GIB = 1 << 30
MIB = 1 << 20
HOSTILE = "<script>attacked = 1</script><img src=x onerror='attacked = 2'>\"&amp;$$x^2$$</textarea>"


def report(ending: str = "", rectangles: int = 400) -> Report:
    figures: tuple[Figure, ...] = (
        timeline(ending),
        address_map(ending),
        packing(ending, rectangles),
        policies(ending),
        blocks(ending),
    )
    facts = (("live at the peak", "8.50 GiB"), (f"recorded{ending}", f"12 s{ending}"))
    return Report(f"a training{ending}", facts, figures)


def timeline(ending: str = "", points: int = 1200) -> Timeline:
    seconds = np.linspace(0, 12, points)
    phase = seconds % 2 / 2
    activation = 4 * GIB * np.where(phase < 0.5, 2 * phase, 2 - 2 * phase)
    live: dict[str, Any] = {
        "parameter": np.full(points, 2.0 * GIB),
        "gradient": 2 * GIB * np.clip(2 * phase - 1, 0, 1),
        "optimizer state": np.where(seconds > 2, 4.0 * GIB, 0.0),
        "activation": activation,
        "temporary": np.zeros(points),
    }
    total = sum(live.values())
    marks = [Mark(float(at), "step", f"step {at // 2}{ending}") for at in range(0, 12, 2)]
    marks += [Mark(at + 1.0, "phase", f"backward{ending}") for at in range(0, 12, 2)]
    marks.append(Mark(9.3, "out of memory", f"1.50 GiB refused{ending}"))
    reserved = np.maximum.accumulate(total) * 1.08
    note = f"each point is the peak of 800 events{ending}"
    return Timeline(f"Live bytes{ending}", seconds, live, reserved, tuple(marks), note, "seconds")


def address_map(ending: str = "") -> AddressMap:
    rows = []
    for number in range(4):
        address = 0x7F0000000000 + number * (1 << 36)
        row = []
        for index in range(12):
            size = (8 + 5 * (index * 7 % 11)) * MIB
            kind = ("used", "free", "used", "absent")[index % 4]
            row.append(Piece(address, size, kind, CATEGORIES[index % 6], 0, f"b{index}{ending}"))
            address += size
        rows.append(tuple(row))
    views = []
    for number in range(3):
        start = 0x7FE000000000 + number * (1 << 33)
        pieces, at = [], start
        for lower in rows:
            piece = lower[1 + 4 * (number % 2)]
            pieces.append((at, piece.address, piece.size_bytes))
            at += piece.size_bytes
        views.append(View(start, at - start, number != 1, tuple(pieces), f"attention{ending}"))
    return AddressMap(f"Addresses{ending}", tuple(rows), tuple(views))


def packing(ending: str = "", rectangles: int = 400) -> Packing:
    """Return shelves of blocks, each a little later than the one below."""
    number = np.arange(rectangles)
    shelf = number % 20
    begin = number // 20 / 4 + shelf / 40
    return Packing(
        f"Plan{ending}",
        begin.astype(np.float64),
        (begin + 0.24).astype(np.float64),
        np.asarray(shelf * 400 * MIB, np.float64),
        np.full(rectangles, 390.0 * MIB, np.float64),
        (number // 3 % 3).astype(np.int32),
        ("forward", f"backward{ending}", "optimizer"),
        tuple(f"layers.{index % 48}.mlp{ending}" for index in number),
        "seconds",
        8300 * MIB,
        8000 * MIB,
    )


def policies(ending: str = "") -> Policies:
    return Policies(
        f"Policies{ending}",
        ("caching", f"expandable{ending}", "stitch", "plan"),
        (12 * GIB, 10 * GIB, 9 * GIB, 9 * GIB - 5),
        (3, 0, 0, 0),
        (120.5, 80.1, 33.0, 12.0),
        int(8.5 * GIB),
    )


def blocks(ending: str = "") -> Blocks:
    rows = [
        Block(
            (120 - number) * MIB,
            1 + number % 3,
            CATEGORIES[number % 6],
            f"transformer.layers.{number}.mlp{ending}",
            (f"forward  model.py:{number}{ending}", "train  main.py:3"),
            0x7F0000000000 + number,
        )
        for number in range(60)
    ]
    return Blocks(f"Top blocks{ending}", tuple(rows), 9 * GIB)


def random_trace(events: int) -> Trace:
    """Return a trace in which each block lives for a random while, at an address of its own."""
    random = np.random.default_rng(7)
    count = events // 2
    born = np.sort(random.integers(0, 10**9, count))
    died = born + random.integers(1, 10**7, count)
    order = np.argsort(np.concatenate([born, died]), kind="stable")
    sizes = random.integers(1, 4096, count) << 9
    slots = np.cumsum(sizes) % (1 << 34)
    requests = np.zeros(events, REQUEST)
    requests["time_ns"] = 1 + np.concatenate([born, died])[order]
    requests["id"] = order % count
    requests["kind"] = np.where(order < count, Kind.ALLOC, Kind.FREE)
    requests["size_bytes"] = np.where(order < count, sizes[order % count], 0)
    requests["address"] = (1 << 40) + slots[order % count]
    return Trace(requests)
