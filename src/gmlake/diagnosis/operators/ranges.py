"""Which bytes of a storage a view covers, as few runs."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

Run: TypeAlias = tuple[int, int, int, int, int]
"""offset, size, stride, repeat, weight: as in gmlake.diagnosis.builder.Range."""

MOST_RUNS: Final = 256
"""Runs of one view; one with more is described by the range from its first to its last byte."""


@lru_cache(maxsize=1 << 14)
def runs_of(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, item_bytes: int
) -> tuple[tuple[Run, ...], bool]:
    """Return the bytes that a view covers, and whether these are all of them and no others.

    shape, strides and offset are in elements. A dimension of stride 0 makes each element count as
    often as it is long. Views of more than two levels of strides are several runs; those of more
    than MOST_RUNS, and windows that overlap, are widened to one range.
    """
    weight = 1
    levels: list[tuple[int, int]] = []
    for count, stride in zip(shape, strides, strict=True):
        if count == 0:
            return (), True
        if stride == 0:
            weight *= count
        elif count > 1:
            levels.append((stride, count))
    levels.sort()
    run, merged = _merged(levels)
    extent, overlaps = run, False
    for stride, count in merged:
        overlaps |= stride < extent
        extent += (count - 1) * stride
    start = offset * item_bytes
    if overlaps:
        return ((start, extent * item_bytes, extent * item_bytes, 1, 1),), False
    size = run * item_bytes
    if not merged:
        return ((start, size, size, 1, weight),), True
    inner = max(merged, key=lambda level: level[1])
    outer = [level for level in merged if level is not inner]
    several = 1
    for _, count in outer:
        several *= count
    if several > MOST_RUNS:
        return ((start, extent * item_bytes, extent * item_bytes, 1, 1),), False
    step, repeat = inner[0] * item_bytes, inner[1]
    starts = (
        start + item_bytes * sum(places)
        for places in product(*(range(0, stride * count, stride) for stride, count in outer))
    )
    return tuple((place, size, step, repeat, weight) for place in starts), True


def _merged(levels: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """Return the elements of one run, and the (stride, count) of its repetitions, inner first."""
    run = 1
    merged: list[tuple[int, int]] = []
    for stride, count in levels:
        if not merged and stride == run:
            run *= count
        elif merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * count)
        else:
            merged.append((stride, count))
    return run, merged
