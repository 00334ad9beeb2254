"""How much memory blocks of any one size, and mixtures of sizes, take on the driver `sim`."""

from __future__ import annotations

import math
import random

import pytest

import gmlake

MIB = 1 << 20
LIVE = 512 * MIB
GRANULE = 2 * MIB


def spread(least: int, most: int, count: int) -> list[int]:
    """Sizes on a logarithmic scale; every other one is no multiple of 512."""
    ratio = math.log(most / least)
    sizes = [round(least * math.exp(ratio * i / (count - 1))) for i in range(count)]
    return [size | 1 if i % 2 else size // 512 * 512 for i, size in enumerate(sizes)]


def reserved_by(policy: str, size_of: list[int], freed: list[int], more: list[int]) -> int:
    """What is reserved after blocks of `size_of`, without those of `freed`, and of `more`."""
    with gmlake.Lake("sim", policy, capacity="80GiB") as lake:
        blocks = [lake.allocate(size) for size in size_of]
        for index in freed:
            lake.free(blocks[index])
        blocks += [lake.allocate(size) for size in more]
        lake.check()
        reserved: int = lake.stats()["reserved_bytes"]
    return reserved


@pytest.mark.parametrize("size", [*spread(16 << 10, 16 * MIB, 40), 690 << 10, 515 << 10, MIB])
def test_blocks_of_one_size_take_what_they_hold(size: int) -> None:
    count = LIVE // size
    live = count * (-(-size // 512) * 512)
    assert reserved_by("stitch", [size] * count, [], []) <= max(live * 1.005, live + GRANULE)


def mixture(seed: int) -> tuple[list[int], list[int], list[int]]:
    """Blocks of a few sizes, or of many, half of which are freed, and others in their place."""
    chance = random.Random(seed)  # noqa: S311
    few = [round(math.exp(chance.uniform(9, 16))) for _ in range(6)]

    def draw() -> int:
        return chance.choice(few) if seed % 2 else chance.randint(1, MIB)

    def fill(total: int) -> list[int]:
        sizes: list[int] = []
        while total > 0:
            sizes.append(draw())
            total -= sizes[-1]
        return sizes

    first = fill(LIVE)
    freed = sorted(chance.sample(range(len(first)), len(first) // 2))
    return first, freed, fill(sum(first[index] for index in freed))


@pytest.mark.parametrize("seed", range(12))
def test_a_mixture_takes_no_more_than_under_expandable_segments(seed: int) -> None:
    parts = mixture(seed)
    most = reserved_by("expandable", *parts) * 1.005 + GRANULE
    assert reserved_by("stitch", *parts) <= most
