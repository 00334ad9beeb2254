"""Programs that repeat on several streams come to make no driver call, on the driver `sim`."""

from __future__ import annotations

import random
from typing import Any

import pytest

import gmlake

MIB = 1 << 20
REPETITIONS = 24
SETTLED = 20
CALLS = ("create", "release", "map", "unmap", "set_access", "reserve", "unreserve")

Step = list[tuple[int, int, int]]
"""Each is a block's number, its size, 0 where it ends, and its stream."""


def step(seed: int) -> Step:
    """Blocks that begin and end at random on two to six streams; none is left over."""
    chance = random.Random(seed)  # noqa: S311
    streams = chance.randrange(2, 7)
    done: Step = []
    live: list[int] = []
    for number in range(chance.randrange(40, 240)):
        if live and chance.random() < 0.5:
            done.append((live.pop(chance.randrange(len(live))), 0, 0))
        else:
            most = chance.choice((MIB, 30 * MIB, 300 * MIB))
            done.append((number, chance.randrange(512, most), chance.randrange(streams)))
            live.append(number)
    return done + [(number, 0, 0) for number in live]


def calls_of(lake: gmlake.Lake) -> int:
    calls = lake.stats()["driver_calls"]
    return sum(calls[name] for name in CALLS)


def repeat(lake: gmlake.Lake, done: Step) -> int:
    """Run it once; return the driver calls that it took."""
    before = calls_of(lake)
    blocks: dict[int, Any] = {}
    for number, size, stream in done:
        if size:
            blocks[number] = lake.allocate(size, stream=stream)
        else:
            lake.free(blocks.pop(number))
    return calls_of(lake) - before


@pytest.mark.parametrize("seed", range(40))
def test_a_program_on_several_streams_settles(seed: int) -> None:
    done = step(seed)
    with gmlake.Lake("sim", "stitch", capacity="1TiB") as lake:
        calls = [repeat(lake, done) for _ in range(REPETITIONS)]
        lake.check()
    assert calls[SETTLED:] == [0] * (REPETITIONS - SETTLED)
