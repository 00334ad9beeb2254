"""Recordings and plans as rectangles: time across, address up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES, Packing
from gmlake.snapshots.model import UNKNOWN, DeviceSnapshot, Site
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.pictures.figures import Numbers
    from gmlake.planning.report import PlanResult

    Integers = NDArray[np.int64]

MOST_LARGE: Final = 2500
"""Rectangles drawn one by one where there are too many: those of the largest area."""

_CELLS: Final = 32
"""The others are put together in a grid of so many cells each way."""

_FARTHEST: Final = 1 << 62
"""From the lowest address to what is drawn; beyond it lies only what nobody can mean."""

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
    seen: DeviceSnapshot,
    sites: dict[int, Site],
    times: tuple[Numbers, str],
    title: str,
    most_large: int = MOST_LARGE,
) -> Packing | None:
    """Return every block of the events where it lay; None where no addresses were recorded.

    times: of each event, and their unit. most_large: how many are drawn one by one.
    """
    lives = seen.lives
    ids = np.flatnonzero((lives.size_bytes > 0) & (lives.address > 0))
    if not len(ids) or not len(seen.events):
        return None
    seconds, unit = times
    rows = len(seen.events)
    born, died = lives.born[ids], lives.died[ids]
    sizes = lives.size_bytes[ids]
    offsets, height_bytes = _compact(lives.address[ids], sizes)
    categories = seen.categories[ids]
    colour, keys = _by_size(sizes)
    if (categories != UNKNOWN).any():
        colour, keys = categories.astype(np.int32), CATEGORIES
    rectangles = _Rectangles(
        begin=np.where(born < 0, seconds[0], seconds[np.maximum(born, 0)]),
        end=np.where(died >= rows, seconds[-1], seconds[np.minimum(died, rows - 1)]),
        offset=offsets,
        size=sizes,
        colour=colour,
        keys=keys,
        labels=_Labels(lives.requested_bytes[ids], lives.site[ids], sites),
    )
    notes = ["addresses at which nothing ever lay are left out"]
    drawn = _packing(title, rectangles, notes, most_large)
    return replace(drawn, unit=unit, height_bytes=height_bytes, bound_bytes=seen.peak.live_bytes)


def packing_of_plan(result: PlanResult) -> list[Packing]:
    """Return the packing of a whole trace or instance, where it was kept."""
    if result.lifetimes is None or result.offsets is None or not len(result.lifetimes):
        return []
    table = result.lifetimes
    sizes = table["size_bytes"].astype(np.int64)
    colour, keys = _by_size(sizes)
    rectangles = _Rectangles(
        begin=table["start"].astype(np.float64),
        end=table["end"].astype(np.float64),
        offset=np.asarray(result.offsets).astype(np.int64),
        size=sizes,
        colour=colour,
        keys=keys,
        labels=_Labels(sizes, np.zeros(len(sizes), np.uint64), {}),
    )
    drawn = _packing(result.trace, rectangles, [], MOST_LARGE)
    return [
        replace(
            drawn,
            unit="requests",
            height_bytes=result.peak_bytes,
            bound_bytes=result.lower_bound_bytes,
        )
    ]


class _Labels:
    """What to say of a rectangle, made only for those that are drawn."""

    def __init__(
        self, sizes: Integers, numbers: NDArray[np.uint64], sites: dict[int, Site]
    ) -> None:
        self._sizes, self._numbers, self._sites = sizes, numbers, sites

    def of(self, row: int) -> str:
        site = self._sites.get(int(self._numbers[row]))
        size = format_size(int(self._sizes[row]))
        return f"{size} · {site}" if site is not None and str(site) else size


def _by_size(sizes: Integers) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    return np.searchsorted(_SIZE_LIMITS, sizes).astype(np.int32), _SIZE_KEYS


def _compact(addresses: NDArray[np.uint64], sizes: Integers) -> tuple[Integers, int]:
    """Return offsets that leave out what no block ever covered, and how high that is."""
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
    """Put the smallest together where there are too many."""
    begin, end = all_of.begin, all_of.end
    offset, size = all_of.offset.astype(np.float64), all_of.size.astype(np.float64)
    colour, keys, count = all_of.colour, all_of.keys, len(begin)
    if count <= most_large + _CELLS * _CELLS:
        texts = [all_of.labels.of(row) for row in range(count)]
    else:
        order = np.argsort(-(end - begin) * size, kind="stable")
        large, small = order[:most_large], order[most_large:]
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


def _merge(columns: list[Numbers]) -> tuple[list[Numbers], Integers]:
    """Return a frame around the rectangles of each cell of a grid, and how many these are."""
    begin, end, offset, size = columns
    top = offset + size
    cell = _cell((begin + end) / 2) * _CELLS + _cell(offset + size / 2)
    order = np.argsort(cell, kind="stable")
    _, first, counts = np.unique(cell[order], return_index=True, return_counts=True)
    begins = np.minimum.reduceat(begin[order], first)
    ends = np.maximum.reduceat(end[order], first)
    offsets = np.minimum.reduceat(offset[order], first)
    sizes = np.maximum.reduceat(top[order], first) - offsets
    return [begins, ends, offsets, sizes], counts


def _cell(middle: Numbers) -> Integers:
    low, high = float(middle.min()), float(middle.max())
    width = (high - low) / _CELLS or 1.0
    return np.minimum((middle - low) / width, _CELLS - 1).astype(np.int64)
