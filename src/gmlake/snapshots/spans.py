"""A set of address spans that do not overlap, any part of which can be added or removed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Any, TypeAlias

Span: TypeAlias = tuple[Any, ...]
"""(begin, end, data)."""

_MOST = 128


class Spans:
    """Spans in many short lists, so that a change moves few of them."""

    def __init__(self, spans: list[Span]) -> None:
        self._parts = _divided(spans) or [[]]
        self._starts = [part[0][0] if part else 0 for part in self._parts]

    def __iter__(self) -> Iterator[Span]:
        return chain.from_iterable(self._parts)

    def within(self, begin: int, end: int) -> list[Span]:
        """Return the spans that overlap [begin, end)."""
        _, held, chosen = self._find(begin, end)
        return held[chosen]

    def take(self, begin: int, end: int) -> list[Span]:
        """Remove [begin, end); return the spans that overlapped it, as they were."""
        return self._replace(begin, end, [])

    def put(self, span: Span) -> None:
        """Add a span, replacing everything there."""
        self._replace(span[0], span[1], [span])

    def _find(self, begin: int, end: int) -> tuple[slice, list[Span], slice]:
        """Return the lists to search, their spans, and those that overlap [begin, end)."""
        first = max(bisect_right(self._starts, begin) - 1, 0)
        lists = slice(first, max(bisect_left(self._starts, end), first + 1))
        held = list(chain.from_iterable(self._parts[lists]))
        low, high = (bisect_left(held, (place,)) for place in (begin, end))
        if low and held[low - 1][1] > begin:
            low -= 1
        return lists, held, slice(low, high)

    def _replace(self, begin: int, end: int, added: list[Span]) -> list[Span]:
        lists, held, chosen = self._find(begin, end)
        taken = held[chosen]
        before = [(span[0], begin, *span[2:]) for span in taken if span[0] < begin]
        behind = [(end, *span[1:]) for span in taken if span[1] > end]
        held[chosen] = [*before, *added, *behind]
        parts = _divided(held)
        if not parts and len(self._parts) == lists.stop - lists.start:
            parts = [[]]
        self._parts[lists] = parts
        self._starts[lists] = [part[0][0] if part else 0 for part in parts]
        return taken


def _divided(spans: list[Span]) -> list[list[Span]]:
    if len(spans) <= _MOST:
        return [spans] if spans else []
    step = _MOST // 2
    return [spans[place : place + step] for place in range(0, len(spans), step)]
