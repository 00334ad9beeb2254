"""Folds long rows of addresses into lines, as text is, so that small pieces can be seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.pictures.figures import Piece, View

_LINES = 12
"""About how many lines all rows take."""

Row = tuple["Piece", ...]


@dataclass(frozen=True)
class Line:
    """Addresses from `begin` to `end`, and the contents at any moment."""

    begin: int
    end: int
    pieces: Row


def fold(rows: Sequence[Row], views: Sequence[View]) -> list[Line]:
    """Return lines, none longer than a power of 2 that the largest view fits into."""
    total = sum(end - begin for begin, end in map(_ends, rows))
    widest = max((view.size_bytes for view in views), default=0)
    width = 1 << (max(widest, total // _LINES, 1) - 1).bit_length()
    return [line for row in rows for line in _lines(row, width)]


def _ends(row: Row) -> tuple[int, int]:
    begin = min(piece.address for piece in row)
    return begin, max(piece.address + piece.size_bytes for piece in row)


def _lines(row: Row, width: int) -> Iterator[Line]:
    begin, end = _ends(row)
    lines: list[list[Piece]] = [[] for _ in range(max(-(-(end - begin) // width), 1))]
    for piece in row:
        stop = piece.address + piece.size_bytes
        first, last = (piece.address - begin) // width, (max(stop, 1) - 1 - begin) // width
        if first == last:
            lines[first].append(piece)
            continue
        for number in range(first, last + 1):
            low = begin + number * width
            lines[number].append(_part(piece, max(piece.address, low), min(stop, low + width)))
    for number, line in enumerate(lines):
        low = begin + number * width
        if any(piece.kind != "absent" for piece in line):
            yield Line(low, min(low + width, end), tuple(line))


def _part(piece: Piece, begin: int, end: int) -> Piece:
    whole = f"part of {format_size(piece.size_bytes)} at {piece.address:#x}"
    label = f"{piece.label}, {whole}" if piece.label else whole
    return replace(piece, address=begin, size_bytes=end - begin, label=label)


class Finder:
    """Finds the lines in which addresses are."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._order = sorted(range(len(lines)), key=lambda number: lines[number].begin)
        self._starts = [lines[number].begin for number in self._order]
        self._ends = [lines[number].end for number in self._order]

    def parts(self, address: int, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (line, offset in the line, offset in the range, size) for each part in a line."""
        begin, end = address, address + size_bytes
        while begin < end:
            place = bisect_right(self._starts, begin) - 1
            if place < 0 or begin >= self._ends[place]:
                if place + 1 >= len(self._starts):
                    return
                begin = self._starts[place + 1]
                continue
            stop = min(end, self._ends[place])
            yield self._order[place], begin - self._starts[place], begin - address, stop - begin
            begin = stop
