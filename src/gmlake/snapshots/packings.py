"""Recordings as rectangles: time across, address up."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import Numbers, Packing
from gmlake.snapshots.sites import OwnLines
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.classes import Classes
    from gmlake.snapshots.held import Places
    from gmlake.snapshots.moments import Playback

    Integers = NDArray[np.int64]

MOST_LARGE: Final = 2500
"""Rectangles drawn one by one if there are too many: those of the largest area."""

_CELLS: Final = 32
"""The others are merged in a grid of so many cells each way."""

_MOST_WORK: Final = 20_000_000
"""Free places to look at for one as large as a range; then ranges take the lowest, in parts."""

_MOST_PARTS: Final = 200_000

_FARTHEST: Final = 1 << 62
"""The most from the lowest address to a drawn one; farther addresses are implausible."""

_SIZE_KEYS: Final = ("up to 1 MiB", "up to 16 MiB", "up to 256 MiB", "larger")
_SIZE_LIMITS: Final = (1 << 20, 16 << 20, 256 << 20)


@dataclass
class _Rectangles:
    """Columns, shape (rectangles,): time across, bytes up, and an index into `keys`."""

    begin: Numbers
    end: Numbers
    offset: Integers
    size: Integers
    colour: NDArray[np.int32]
    keys: tuple[str, ...]
    labels: _Labels


def packing_of_lives(
    playback: Playback, classes: Classes, title: str, most_large: int, group: int
) -> Packing | None:
    """Return every block at its place in the reserved memory; None without recorded addresses.

    The height is the most memory held at once: ranges that followed each other share a place, as
    physical memory does. most_large: how many blocks are drawn one by one.
    """
    lives, rows, places = playback.seen.lives, len(playback.seen.events), playback.places
    notes = []
    if 2 * np.count_nonzero(np.bincount(places.block)) >= np.count_nonzero(lives.size_bytes) > 0:
        block, offsets, sizes, height_bytes = _stacked(playback.held, places)
        if len(places.lost):
            notes.append(
                f"{len(places.lost):,} blocks lay in what was gone at the end: where their bytes "
                "were is not recorded, and they are not drawn"
            )
        name = "held at most"
    else:
        block = np.flatnonzero((lives.size_bytes > 0) & (lives.address > 0))
        if not len(block):
            return None
        sizes = lives.size_bytes[block]
        offsets, height_bytes = _compact(lives.address[block], sizes)
        notes.append("addresses that were never used are left out")
        name = "height"
    if not len(block) or not rows:
        return None
    born, died = np.maximum(lives.born[block], 0), np.minimum(lives.died[block], rows - 1)
    colour, keys = _by_size(sizes)
    if classes.is_known:
        colour, keys = classes.of_id[block], classes.names
    rectangles = _Rectangles(
        begin=born.astype(np.float64),
        end=died.astype(np.float64),
        offset=offsets,
        size=sizes,
        colour=colour,
        keys=keys,
        labels=_Labels(lives.requested_bytes[block], lives.site[block], playback.lines),
    )
    drawn = _packing(title, rectangles, notes, most_large)
    seconds = playback.seconds
    return replace(
        drawn,
        height_bytes=height_bytes,
        bound_bytes=playback.seen.peak.live_bytes,
        height_name=name,
        bound_name="live at the peak",
        seconds=None
        if seconds is None
        else (_times(seconds, drawn.begin), _times(seconds, drawn.end)),
        group=group,
    )


def _times(seconds: Numbers, rows: Numbers) -> Numbers:
    result: Numbers = seconds[rows.astype(np.int64)]
    return result


def _stacked(held: NDArray[np.void], places: Places) -> tuple[Integers, Integers, Integers, int]:
    """Return for each part of a block its id, offset and size, and the total height."""
    row, skipped, low, sizes = _levels(held)
    # A range in several parts: each part of a block is cut where these are.
    first = np.searchsorted(row, places.held, side="left")
    count = np.searchsorted(row, places.held, side="right") - first
    of_place = np.repeat(np.arange(len(first)), count)
    nth = np.arange(len(of_place)) - np.repeat(np.cumsum(count) - count, count)
    level = np.repeat(first, count) + nth
    base = held["begin"][places.held[of_place]] + skipped[level]
    begin = np.maximum(places.begin[of_place], base)
    end = np.minimum(places.end[of_place], base + sizes[level])
    kept = begin < end
    block, offset = places.block[of_place][kept], (low[level] + begin - base)[kept]
    size = (end - begin)[kept]
    is_new = np.concatenate([[True], np.diff(block) != 0])[: len(block)]
    is_new[1:] |= offset[1:] != (offset + size)[:-1]
    firsts = np.flatnonzero(is_new)
    total = np.add.reduceat(size, firsts) if len(firsts) else size
    height = int((low + sizes).max(initial=0))
    return block[firsts], offset[firsts], total, height


def _levels(held: NDArray[np.void]) -> tuple[Integers, Integers, Integers, Integers]:
    """Give each range the lowest free offset that fits, or several parts if none does.

    Returns for each part its row of `held`, ascending, its distance from the begin of that, its
    offset and its size. The height never exceeds the most memory held at once.
    """
    order = np.lexsort((held["begin"], held["born"]))
    parts: list[tuple[int, int, int, int]] = []
    mine: dict[int, list[tuple[int, int]]] = {}
    free: list[tuple[int, int]] = []  # (offset, size), ascending, none beside another
    ending = np.argsort(held["died"], kind="stable").tolist()
    died, top, gone, work = held["died"].tolist(), 0, 0, _MOST_WORK
    begins, ends, born = (held[name].tolist() for name in ("begin", "end", "born"))
    for row in order.tolist():
        while gone < len(ending) and died[ending[gone]] <= born[row]:
            for one in mine.pop(ending[gone], ()):
                _give_back(free, *one)
            gone += 1
        left = ends[row] - begins[row]
        work -= len(free)
        fits = (place for place, one in enumerate(free) if work > 0 and one[1] >= left)
        whole = next(fits, 0)
        taken = []
        while left and free:
            offset, size = free.pop(whole)
            part = min(size, left)
            taken.append((offset, part))
            if part < size:
                insort(free, (offset + part, size - part))
            left -= part
        if left:
            taken.append((top, left))
            top += left
        skipped = 0
        for offset, size in taken:
            parts.append((row, skipped, offset, size))
            skipped += size
        mine[row] = taken
        if len(parts) > _MOST_PARTS:
            break  # parts without a place then are not drawn
    table = np.array(sorted(parts), np.int64).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _give_back(free: list[tuple[int, int]], offset: int, size: int) -> None:
    """Add a free place, and merge it with its neighbours."""
    place = bisect_left(free, (offset, 0))
    if place < len(free) and free[place][0] == offset + size:
        size += free.pop(place)[1]
    if place and sum(free[place - 1]) == offset:
        offset, before = free.pop(place - 1)
        size += before
        place -= 1
    free.insert(place, (offset, size))


def packing_by_size(
    title: str, begin: Numbers, end: Numbers, offset: Integers, size: Integers
) -> Packing:
    """Return rectangles whose colours tell sizes: time across, bytes up, one of each per row."""
    colour, keys = _by_size(size)
    labels = _Labels(size, np.zeros(len(size), np.uint64), OwnLines({}))
    rectangles = _Rectangles(begin, end, offset, size, colour, keys, labels)
    return _packing(title, rectangles, [], MOST_LARGE)


class _Labels:
    """Labels of rectangles, made only for those that are drawn."""

    def __init__(self, sizes: Integers, numbers: NDArray[np.uint64], lines: OwnLines) -> None:
        self._sizes, self._numbers, self._lines = sizes, numbers, lines

    def of(self, row: int) -> str:
        name = self._lines.name(int(self._numbers[row]))
        size = format_size(int(self._sizes[row]))
        return f"{size} · {name}" if name else size


def _by_size(sizes: Integers) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    return np.searchsorted(_SIZE_LIMITS, sizes).astype(np.int32), _SIZE_KEYS


def _compact(addresses: NDArray[np.uint64], sizes: Integers) -> tuple[Integers, int]:
    """Return offsets without gaps that no block ever covered, and the new height."""
    distances = np.minimum(addresses - addresses.min(), _FARTHEST).astype(np.int64)
    order = np.argsort(distances, kind="stable")
    begin, end = distances[order], (distances + sizes)[order]
    reach = np.maximum.accumulate(end)
    gaps = np.maximum(begin[1:] - reach[:-1], 0)
    removed = int(begin[0]) + np.concatenate([[0], np.cumsum(gaps)])
    offsets = np.zeros(len(distances), np.int64)
    offsets[order] = begin - removed
    return offsets, int(reach[-1] - removed[-1])


def _packing(title: str, all_of: _Rectangles, notes: list[str], most_large: int) -> Packing:
    """Merge the smallest rectangles if there are too many."""
    begin, end = all_of.begin, all_of.end
    offset, size = all_of.offset.astype(np.float64), all_of.size.astype(np.float64)
    colour, keys, count = all_of.colour, all_of.keys, len(begin)
    if count <= most_large + _CELLS * _CELLS:
        texts = [all_of.labels.of(row) for row in range(count)]
    else:
        large, small = _largest((end - begin) * size, most_large)
        frames, counts = _merge([column[small] for column in (begin, end, offset, size)])
        begin, end, offset, size = (
            np.concatenate([column[large], frame])
            for column, frame in zip((begin, end, offset, size), frames, strict=True)
        )
        colour = np.concatenate([colour[large], np.full(len(counts), len(keys), np.int32)])
        keys = (*keys, "many small")
        texts = [all_of.labels.of(row) for row in large.tolist()]
        texts += [f"{number:,} small blocks" for number in counts.tolist()]
        notes.append(
            f"{len(small):,} blocks of the smallest area are drawn as {len(counts):,} frames "
            "around those that are near each other"
        )
    return Packing(
        title, begin, end, offset, size, colour, keys, labels=tuple(texts), note="; ".join(notes)
    )


def _largest(areas: Numbers, most: int) -> tuple[Integers, Integers]:
    """Return the rows of so many largest, in their order, and of all others."""
    limit = np.partition(areas, len(areas) - most)[len(areas) - most]
    is_large = areas > limit
    equal = np.flatnonzero(areas == limit)
    is_large[equal[: most - np.count_nonzero(is_large)]] = True
    large = np.flatnonzero(is_large)
    return large[np.argsort(-areas[large], kind="stable")], np.flatnonzero(~is_large)


def _merge(columns: list[Numbers]) -> tuple[list[Numbers], Integers]:
    """Return a frame around the rectangles of each cell of a grid, and how many these are."""
    begin, end, offset, size = columns
    top = offset + size
    cell = _cell((begin + end) / 2) * _CELLS + _cell(offset + size / 2)
    order = np.argsort(cell.astype(np.int16), kind="stable")  # much faster than of larger numbers
    counts = np.bincount(cell)
    counts = counts[counts > 0]
    first = np.cumsum(counts) - counts
    begins = np.minimum.reduceat(begin[order], first)
    ends = np.maximum.reduceat(end[order], first)
    offsets = np.minimum.reduceat(offset[order], first)
    sizes = np.maximum.reduceat(top[order], first) - offsets
    return [begins, ends, offsets, sizes], counts


def _cell(middle: Numbers) -> Integers:
    low, high = float(middle.min()), float(middle.max())
    width = (high - low) / _CELLS or 1.0
    return np.minimum((middle - low) / width, _CELLS - 1).astype(np.int64)
