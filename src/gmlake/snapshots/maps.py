"""The address map of a snapshot: home space as rows of pieces, and where views lie in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES, AddressMap, Piece, View
from gmlake.snapshots.model import DeviceSnapshot, RegionKind, Site
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.trace.layout import Records

MOST_PIECES: Final = 4000
MOST_VIEWS: Final = 500
MOST_VIEW_PIECES: Final = 4000
MOST_ROWS: Final = 400

_LARGEST_GAP: Final = 1 << 30
"""Stretches that are closer to each other share a row."""


def address_map(seen: DeviceSnapshot, sites: dict[int, Site], title: str) -> AddressMap:
    """Return the map. Small neighbours are put together where there are too many."""
    kinds = seen.regions["kind"][seen.ranges["region"]]
    at_home = seen.ranges[np.isin(kinds, (RegionKind.HOME, RegionKind.SEGMENT))]
    at_home = at_home[np.argsort(at_home["address"], kind="stable")]
    groups = _groups(at_home)
    notes = []
    if len(groups) < len(at_home):
        merged = len(at_home) - len(groups)
        notes.append(f"{merged:,} small pieces are drawn together with their neighbours")
    rows, left_out = _rows(_pieces(seen, at_home, groups, sites))
    if left_out:
        notes.append(f"{left_out} stretches of addresses are not drawn, the smallest")
    views, view_note = _views(seen)
    notes += [view_note] if view_note else []
    return AddressMap(title, rows, views, "; ".join(notes))


def _groups(ranges: Records) -> NDArray[np.int64]:
    """Return where each piece to draw begins among the ranges, which ascend."""
    if not len(ranges):
        return np.zeros(0, np.int64)
    ends = ranges["address"] + ranges["size_bytes"]
    is_apart = np.concatenate([[True], ranges["address"][1:] != ends[:-1]])
    if len(ranges) <= MOST_PIECES:
        return np.arange(len(ranges))
    # Every cell holds a like number of bytes; what is larger than a cell stays alone.
    filled = np.cumsum(ranges["size_bytes"].astype(np.int64))
    cell_bytes = max(int(filled[-1]) // (MOST_PIECES // 4), 1)
    cell = (filled - 1) // cell_bytes
    is_large = ranges["size_bytes"] >= cell_bytes
    is_begin = is_apart | np.concatenate([[True], np.diff(cell) != 0])
    is_begin |= is_large | np.concatenate([[False], is_large[:-1]])
    return np.flatnonzero(is_begin)


def _pieces(
    seen: DeviceSnapshot, ranges: Records, groups: NDArray[np.int64], sites: dict[int, Site]
) -> list[Piece]:
    if not len(groups):
        return []
    sizes = ranges["size_bytes"].astype(np.int64)
    counts = np.diff(np.append(groups, len(ranges)))
    total = np.add.reduceat(sizes, groups)
    used = np.add.reduceat(np.where(ranges["is_used"], sizes, 0), groups)
    rows = ranges[groups].tolist()
    streams = seen.regions["stream"][ranges["region"][groups]].tolist()
    pieces = []
    for row, count, size, live, stream in zip(
        rows, counts.tolist(), total.tolist(), used.tolist(), streams, strict=True
    ):
        address, _, requested, site, _, category, is_used = row
        label = ""
        if count > 1:
            label = f"{count:,} pieces, {live / max(size, 1):.0%} used"
        elif is_used:
            what = f"{format_size(requested)} asked for" if requested else "held by a view"
            named = str(sites[site]) if site in sites else ""
            label = f"{what} · {named}" if named else what
        pieces.append(
            Piece(
                address=address,
                size_bytes=size,
                kind="used" if 2 * live >= size else "free",
                category=CATEGORIES[category] if count == 1 else "unknown",
                stream=stream,
                label=label,
            )
        )
    return pieces


def _rows(pieces: list[Piece]) -> tuple[tuple[tuple[Piece, ...], ...], int]:
    """Return rows of pieces, tiled, and how many rows were left out."""
    rows: list[list[Piece]] = []
    end = 0
    for piece in pieces:
        gap = piece.address - end
        if not rows or gap > _LARGEST_GAP:
            rows.append([])
        elif gap > 0:
            rows[-1].append(Piece(end, gap, "absent"))
        rows[-1].append(piece)
        end = piece.address + piece.size_bytes
    left_out = max(len(rows) - MOST_ROWS, 0)
    if left_out:
        rows.sort(key=lambda row: -sum(piece.size_bytes for piece in row))
        rows = sorted(rows[:MOST_ROWS], key=lambda row: row[0].address)
    return tuple(tuple(row) for row in rows), left_out


def _views(seen: DeviceSnapshot) -> tuple[tuple[View, ...], str]:
    kinds = seen.regions["kind"]
    numbers = np.flatnonzero(np.isin(kinds, (RegionKind.VIEW, RegionKind.PLANNED_POOL)))
    order = np.argsort(-seen.regions["size_bytes"][numbers].astype(np.int64), kind="stable")
    used = np.bincount(
        seen.ranges["region"][seen.ranges["is_used"]], minlength=max(len(seen.regions), 1)
    )
    by_region: dict[int, list[tuple[int, int, int]]] = {}
    for address, home, size, region in seen.pieces.tolist():
        by_region.setdefault(region, []).append((address, home, size))
    views: list[View] = []
    left = MOST_VIEW_PIECES
    for number in numbers[order[:MOST_VIEWS]].tolist():
        region = seen.regions[number]
        pieces = by_region.get(number, [])[:left]
        left -= len(pieces)
        is_pool = kinds[number] == RegionKind.PLANNED_POOL
        size = format_size(int(region["size_bytes"]))
        views.append(
            View(
                address=int(region["address"]),
                size_bytes=int(region["size_bytes"]),
                is_live=bool(used[number]),
                pieces=tuple(pieces),
                label=f"{'planned pool' if is_pool else 'view'} of {size}",
            )
        )
    hidden = len(numbers) - len(views)
    note = f"the {hidden:,} smallest views are not drawn" if hidden > 0 else ""
    if left == 0:
        note += ("; " if note else "") + "of some views not every piece is drawn"
    return tuple(views), note
