"""Files of the ranks of a job that never ran: `python made_ranks.py FOLDER RANKS` writes them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gmlake.jobs.summary import (
    ENDED,
    MOST_LINES,
    Curve,
    Device,
    Line,
    Refusal,
    Steps,
    Summary,
    to_bytes,
)

MIB = 1 << 20
BEGAN = 1_700_000_000.0


def curve(live: list[int]) -> Curve:
    """The curve of steps with these peaks; a tenth more is reserved."""
    steps = Steps()
    for size in live:
        steps.add(size, size * 11 // 10)
    return steps.curve()


def line(number: int, size_bytes: int) -> Line:
    return Line(f"layer{number}  /home/me/project/train.py:{number}", size_bytes, 1)


def device(live: list[int], lines: list[Line], **changed: Any) -> Device:
    """What a rank held whose steps had these peaks."""
    highest = max(live, default=0)
    made = Device(
        index=0,
        name="a GPU",
        total_bytes=80 << 30,
        limit_bytes=80 << 30,
        used_bytes=highest * 12 // 10,
        live_bytes=highest,
        reserved_bytes=highest * 11 // 10,
        curve=curve(live),
        lines_bytes=sum(one.size_bytes for one in lines),
        lines=tuple(lines),
    )
    return replace(made, **changed)


def rank(number: int, world: int, *devices: Device, **changed: Any) -> Summary:
    """A rank that ended well."""
    made = Summary(
        rank=number,
        local_rank=number % 8,
        world=world,
        host=f"node{number // 8}",
        pid=1000 + number,
        job="made",
        restart=0,
        started=BEGAN + number % 3,
        written=BEGAN + 3600,
        steps=sum(len(one.curve.live) * one.curve.each for one in devices[:1]),
        state=ENDED,
        error="",
        gmlake="0",
        torch="2.11.0",
        policy="gmlake (stitch)",
        settings="",
        devices=devices,
    )
    return replace(made, **changed)


def write(folder: Path, *ranks: Summary) -> list[Path]:
    """Write a file of each, as a process does; return their paths."""
    folder.mkdir(exist_ok=True)
    paths = []
    for one in ranks:
        path = folder / f"rank{one.rank}-{one.host}-{one.pid}-{one.started:.0f}.json"
        path.write_bytes(to_bytes(one))
        paths.append(path)
    return paths


def full_rank(number: int, world: int) -> Summary:
    """A rank whose file is as large as any; one in 100 is refused, one in 64 grows."""
    steps = 100_000
    grows = (number % 64 == 7) * 40_000
    live = [
        40_000 * MIB + grows * step + (number * 37 + step) % 999 for step in range(0, steps, 97)
    ]
    lines = [line(at, (900 - at) * MIB + number) for at in range(MOST_LINES)]
    refused = number % 100 == 13
    refusal = Refusal(0, steps, 600 * MIB, 10 * MIB, 40_000 * MIB, 50_000 * MIB, lines[0].frame)
    made = rank(number, world, device(live, lines, refused=int(refused)))
    return replace(made, refusals=(refusal,) * refused)


if __name__ == "__main__":
    for each in range(int(sys.argv[2])):
        write(Path(sys.argv[1]), full_rank(each, int(sys.argv[2])))
