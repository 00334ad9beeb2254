"""The memory reserved from the driver over time, and where every block lay in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.snapshots.spans import Spans
from gmlake.trace.layout import Kind, SpanKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.model import DeviceSnapshot

    Integers = NDArray[np.int64]

HELD: Final = np.dtype(
    [
        ("begin", "<i8"),
        ("end", "<i8"),
        ("born", "<i8"),
        ("died", "<i8"),
        ("stream", "<u8"),
        ("range", "<i8"),
    ]
)
"""A range of addresses, held after the events born to died - 1; born is -1 before all of them.

Rows of one `range` lie next to each other, and came from the driver together.
"""

_MOST_CUTS: Final = 200_000
_MOST_PARTS: Final = 4_000_000  # of all blocks: any more are dropped, as files can be hostile
_MOST_OF_A_BLOCK: Final = 4096
_FARTHEST: Final = 1 << 62  # no device has such addresses, but a file can


@dataclass(frozen=True, eq=False)
class Places:
    """Where blocks lie in the base range; arrays of shape (parts,), a row for each part of a block.

    block: its id. begin, end: addresses in the base range. held: the row of the range it lies in.
    lost: the ids of blocks in views that were gone at the end, whose place is not recorded.
    """

    block: Integers
    begin: Integers
    end: Integers
    held: Integers
    lost: Integers


def held_over(seen: DeviceSnapshot) -> NDArray[np.void]:
    """Return the ranges held over time, dtype HELD, by address and birth: undoes the events.

    Empty if the recording has no such events.
    """
    real = seen.spans["kind"] != SpanKind.VIEW
    rows = len(seen.events)
    held = Spans([])  # (begin, end, died, stream), going back from event to event
    found: list[tuple[int, int, int, int, int]] = []
    missing: list[tuple[int, int, int, int]] = []  # (begin, end, born, stream)

    def open_span(address: int, size: int, stream: int, died: int) -> None:
        if size and address < _FARTHEST:
            held.put((address, address + size, died, stream))

    for address, size, stream in seen.spans[real][["address", "size_bytes", "stream"]].tolist():
        open_span(address, size, stream, rows)
    changes = np.flatnonzero(np.isin(seen.events["kind"], (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)))
    columns = seen.events[changes][["address", "size_bytes", "stream", "kind"]].tolist()
    for row, (address, size, stream, kind) in zip(
        reversed(changes.tolist()), reversed(columns), strict=True
    ):
        if kind == Kind.SEGMENT_FREE:
            open_span(address, size, stream, row)
            continue
        covered, stop = address, address + size
        for begin, end, died, of_stream in [*held.take(address, stop), (stop, stop, 0, 0)]:
            if covered < begin and covered < _FARTHEST:
                missing.append((covered, begin, row, stream))
            covered = end
            if begin < stop:
                found.append((max(begin, address), min(end, stop), row, died, of_stream))
    left = sorted(held, key=lambda span: -span[2])  # the order in which they were found
    births = _births(seen, left) if missing else [-1] * len(left)
    found += [(*span[:2], born, *span[2:]) for span, born in zip(left, births, strict=True)]
    found += _lent(seen, missing, births)
    table = _cut(np.array([(*one, number) for number, one in enumerate(found)], HELD))
    return table[np.lexsort((table["born"], table["begin"]))]


def _births(seen: DeviceSnapshot, spans: list[tuple[int, int, int, int]]) -> list[int]:
    """Return since when stitched views are held, as no event says so: since their first blocks."""
    order = np.argsort(seen.lives.address, kind="stable")
    addresses, born = seen.lives.address[order], seen.lives.born[order]
    begins, ends = (np.array([span[at] for span in spans], addresses.dtype) for at in (0, 1))
    first, last = np.searchsorted(addresses, begins), np.searchsorted(addresses, ends)
    return [
        int(born[low:high].min(initial=len(seen.events))) if low < high else -1
        for low, high in zip(first.tolist(), last.tolist(), strict=True)
    ]


def _lent(
    seen: DeviceSnapshot, missing: list[tuple[int, int, int, int]], births: list[int]
) -> list[tuple[int, int, int, int, int]]:
    """Return when ranges were held that were never released, but are not there at the end.

    Their memory is drawn in stitched views by then. A view is made from free memory: so each was
    held until the first new view after its last block. births: of the views. Where PyTorch left out
    an event, there is none: then until the first new segment.
    """
    if not missing:
        return []
    lives, rows = seen.lives, len(seen.events)
    views = np.unique([born for born in births if born >= 0])
    segments = np.flatnonzero(seen.events["kind"] == Kind.SEGMENT_ALLOC)
    takes = np.append(views if len(views) else segments, rows).astype(np.int64)
    order = np.argsort(lives.address, kind="stable")
    addresses, died = lives.address[order], lives.died[order]
    found = []
    for begin, end, born, stream in missing:
        first, last = np.searchsorted(addresses, [begin, end])
        free_from = max(born, int(died[first:last].max(initial=born)))
        until = (
            rows if free_from >= rows else int(takes[np.searchsorted(takes, free_from, "right")])
        )
        found.append((begin, end, born, until, stream))
    return found


def _cut(table: NDArray[np.void]) -> NDArray[np.void]:
    """Cut ranges where one of another time begins, so that a search by begin finds them all."""
    begins = np.unique(table["begin"])
    first = np.searchsorted(begins, table["begin"], side="left")
    count = np.searchsorted(begins, table["end"], side="left") - first
    if int(count.sum()) > _MOST_CUTS + 4 * len(table):
        return table
    result = np.repeat(table, count)
    nth = np.arange(len(result)) - np.repeat(np.cumsum(count) - count, count)
    at = np.repeat(first, count) + nth
    result["begin"] = begins[at]
    following = np.append(begins[1:], np.iinfo(np.int64).max)[at]
    result["end"] = np.minimum(result["end"], following)
    return result


def places_of(seen: DeviceSnapshot, held: NDArray[np.void]) -> Places:
    """Return where the blocks lie: in the base range, or by the pieces of their view."""
    lives = seen.lives
    has_place = (lives.address > 0) & (lives.address < _FARTHEST)
    ids = np.flatnonzero(has_place & (lives.size_bytes > 0))
    begin = lives.address[ids].view(np.int64)
    block, begin, end = _through_views(seen, ids, begin, begin + lives.size_bytes[ids])
    found: list[tuple[Integers, ...]] = []
    finder, left = _Finder(held), _MOST_PARTS + 2 * len(ids)
    for _ in range(_MOST_OF_A_BLOCK):
        if not len(block) or len(block) > left:
            break
        left -= len(block)
        row = finder.row_at(begin, np.maximum(lives.born[block], -1))
        is_inside = row >= 0
        block, begin, end, row = (part[is_inside] for part in (block, begin, end, row))
        stop = np.minimum(end, held["end"][row])
        found.append((block, begin, stop, row))
        goes_on = stop < end
        block, begin, end = block[goes_on], stop[goes_on], end[goes_on]
    empty = np.zeros(0, np.int64)
    columns = [np.concatenate([empty, *parts]) for parts in zip(*found, strict=True)] or [empty] * 4
    order = np.lexsort((columns[1], columns[0]))
    block, begin, end, row = (column[order] for column in columns)
    placed = np.bincount(block, end - begin, minlength=len(lives.size_bytes))
    lost = ids[placed[ids] < lives.size_bytes[ids]]
    is_whole = ~np.isin(block, lost)
    return Places(block[is_whole], begin[is_whole], end[is_whole], row[is_whole], lost)


def _through_views(
    seen: DeviceSnapshot, ids: Integers, begin: Integers, end: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return the parts of blocks; those in views with addresses in the base range."""
    pieces = seen.pieces[np.argsort(seen.pieces["address"], kind="stable")]
    low = pieces["address"].astype(np.int64)
    high = np.maximum.accumulate(low + pieces["size_bytes"].astype(np.int64))
    first = np.searchsorted(high, begin, side="right")
    count = np.maximum(np.searchsorted(low, end, side="left") - first, 0)
    few = np.cumsum(count) <= _MOST_PARTS + 2 * len(ids)
    ids, begin, end, first, count = (part[few] for part in (ids, begin, end, first, count))
    if not count.any():
        return ids, begin, end
    of_view = np.repeat(np.arange(len(ids)), count)
    nth = np.arange(len(of_view)) - np.repeat(np.cumsum(count) - count, count)
    piece = first[of_view] + nth
    part_begin = np.maximum(begin[of_view], low[piece])
    part_end = np.minimum(end[of_view], high[piece])
    shift = pieces["base_address"].astype(np.int64)[piece] - low[piece]
    at_base = count == 0
    return (
        np.concatenate([ids[at_base], ids[of_view]]),
        np.concatenate([begin[at_base], part_begin + shift]),
        np.concatenate([end[at_base], part_end + shift]),
    )


class _Finder:
    """Finds the range that held an address after an event."""

    def __init__(self, held: NDArray[np.void]) -> None:
        """Number the begins of ranges, which _cut() made the same at all times."""
        self._held = held
        self._begins, group = np.unique(held["begin"], return_inverse=True)
        self._span = int(held["died"].max(initial=0)) + 2
        self._keys = group.astype(np.int64) * self._span + held["born"] + 1

    def row_at(self, address: Integers, row: Integers) -> Integers:
        """Return the row of the range for each address and event; -1 if there is none."""
        if not len(self._held):
            return np.full(len(address), -1, np.int64)
        group = np.searchsorted(self._begins, address, side="right") - 1
        place = np.searchsorted(self._keys, group * self._span + row + 1, side="right") - 1
        found = self._held[np.maximum(place, 0)]
        is_it = (place >= 0) & (found["begin"] <= address) & (address < found["end"])
        is_it &= (found["born"] <= row) & (row < found["died"])
        result: Integers = np.where(is_it, place, -1)
        return result
