"""Folds long rows of addresses into lines, as text is, so that small pieces can be seen."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gmlake.pictures.figures import Piece, View

_LINES = 12
"""About how many lines all rows take."""

Line = tuple["Piece", ...]


def fold(rows: Sequence[Line], views: Sequence[View]) -> list[Line]:
    """Return lines, none longer than a power of 2 that the largest view fits into."""
    total = sum(length_of(row) for row in rows)
    widest = max((view.size_bytes for view in views), default=0)
    width = 1 << (max(widest, total // _LINES, 1) - 1).bit_length()
    return [line for row in rows for line in _lines(row, width)]


def length_of(row: Line) -> int:
    """Return the bytes from a row's first address to its end. Its pieces ascend.

    The last one may end before another: a file can have regions over each other.
    """
    return max(piece.address + piece.size_bytes for piece in row) - row[0].address


def _lines(row: Line, width: int) -> Iterator[Line]:
    line: list[Piece] = []
    end = row[0].address + width
    for piece in row:
        rest = piece
        while rest.address + rest.size_bytes > end:
            if rest.address < end:
                line.append(_part(piece, rest.address, end))
            yield tuple(line)
            line = []
            rest = _part(piece, end, piece.address + piece.size_bytes)
            end += width
        if rest.size_bytes:
            line.append(rest)
    if line:
        yield tuple(line)


def _part(piece: Piece, begin: int, end: int) -> Piece:
    whole = f"part of {format_size(piece.size_bytes)} at {piece.address:#x}"
    label = f"{piece.label}, {whole}" if piece.label else whole
    return replace(piece, address=begin, size_bytes=end - begin, label=label)


class Finder:
    """Finds the lines in which addresses are."""

    def __init__(self, lines: Sequence[Line]) -> None:
        """Sort the lines by address."""
        self._order = sorted(range(len(lines)), key=lambda number: lines[number][0].address)
        self._starts = [lines[number][0].address for number in self._order]
        self._ends = [
            start + length_of(lines[number])
            for start, number in zip(self._starts, self._order, strict=True)
        ]

    def parts(self, address: int, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (line, offset in the line, offset in the range, size) for what is in a line."""
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
