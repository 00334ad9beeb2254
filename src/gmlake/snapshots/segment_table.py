"""Segments in address order, of which any part comes and goes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain

Segment = tuple[int, int, int, int, int, bool]
"""(address, bytes, stream, owner and number of the pool, whether it is small)."""

_MOST = 128


class SegmentTable:
    """Keeps them in many short lists, so that a change moves few of them."""

    def __init__(self, segments: list[Segment]) -> None:
        """Begin with segments that are sorted."""
        self._parts = _divided(segments) or [[]]
        self._starts = [part[0][0] if part else 0 for part in self._parts]

    def all(self) -> list[Segment]:
        """Return all of them."""
        return list(chain.from_iterable(self._parts))

    def replace(self, begin: int, end: int, added: Segment | None) -> None:
        """Take out what lies in [begin, end), and put a segment in."""
        first = max(bisect_right(self._starts, begin) - 1, 0)
        behind = max(bisect_left(self._starts, end), first + 1)
        held = list(chain.from_iterable(self._parts[first:behind]))
        low, high, kept = _cut_out(held, begin, end)
        held[low:high] = sorted([*kept, added]) if added else kept
        parts = _divided(held)
        if not parts and len(self._parts) == behind - first:
            parts = [[]]
        self._parts[first:behind] = parts
        self._starts[first:behind] = [part[0][0] if part else 0 for part in parts]


def _divided(segments: list[Segment]) -> list[list[Segment]]:
    if len(segments) <= _MOST:
        return [segments] if segments else []
    step = _MOST // 2
    return [segments[place : place + step] for place in range(0, len(segments), step)]


def _cut_out(held: list[Segment], begin: int, end: int) -> tuple[int, int, list[Segment]]:
    """Return which of the segments reach into [begin, end), and what that leaves of them."""
    first, last = (bisect_left(held, (place,)) for place in (begin, end))
    if first and held[first - 1][0] + held[first - 1][1] > begin:
        first -= 1
    kept: list[Segment] = []
    for segment in held[first:last]:
        address, size, *_ = segment
        if address < begin:
            kept.append((address, begin - address, *segment[2:]))
        if address + size > end:
            kept.append((end, address + size - end, *segment[2:]))
    return first, last, kept
