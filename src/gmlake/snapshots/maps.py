"""The address map of a recording: base range at every moment, and where views lie in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import AddressMap, Piece, View
from gmlake.trace.layout import SpanKind
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.classes import Classes
    from gmlake.snapshots.model import DeviceSnapshot
    from gmlake.snapshots.moments import Playback

    Integers = NDArray[np.int64]

MOST_PIECES: Final = 4000
"""Of all moments together; smaller pieces appear as part of the range that holds them."""

MOST_HELD: Final = 1000
MOST_VIEWS: Final = 500
MOST_VIEW_PIECES: Final = 4000
MOST_ROWS: Final = 400

_LARGEST_GAP: Final = 1 << 30
"""Stretches that are closer to each other share a row."""


def address_map(playback: Playback, classes: Classes, topic: str, group: int) -> AddressMap | None:
    """Return the map of all moments; None if no addresses are recorded."""
    held, used, free = _held(playback), _used(playback), _free(playback)
    table = np.concatenate([held, used, free])
    if not len(table):
        return None
    drawn, notes = _largest(table, playback.shown)
    rows, left_out = _rows(table, [_piece(playback, classes, row) for row in drawn])
    if left_out:
        notes.append(f"{left_out} stretches of addresses are not drawn, the smallest")
    views, view_note = _views(playback.seen)
    notes += [view_note] if view_note else []
    if views and playback.rows[playback.shown] < len(playback.seen.events) - 1:
        notes.append("views are drawn as they are at the end")
    return AddressMap(
        f"{topic} {playback.name(playback.shown)}",
        rows,
        views,
        "; ".join(notes),
        classes.names,
        playback.shown,
        topic,
        group,
    )


_HELD, _USED, _FREE = range(3)
_PART: Final = np.dtype(
    [
        ("kind", "i1"),
        ("begin", "<i8"),
        ("end", "<i8"),
        ("first", "<i4"),
        ("last", "<i4"),  # the moment behind the last one
        ("number", "<i8"),  # of what is held, or the part of a block
        ("before", "<i8"),
        ("behind", "<i8"),
        ("stream", "<u8"),
        ("pool", "<u4"),
    ]
)


def _held(playback: Playback) -> NDArray[np.void]:
    first, end = playback.held_moments
    _, whole = np.unique(playback.held["range"], return_index=True)
    chosen = whole[first[whole] < end[whole]]
    size = np.bincount(playback.held["range"], playback.held["end"] - playback.held["begin"])
    table = np.zeros(len(chosen), _PART)
    for name in ("begin", "stream"):
        table[name] = playback.held[name][chosen]
    table["end"] = table["begin"] + size[playback.held["range"][chosen]].astype(np.int64)
    table["first"], table["last"], table["number"] = first[chosen], end[chosen], chosen
    table["pool"] = playback.held_pools[chosen]
    return table


def _used(playback: Playback) -> NDArray[np.void]:
    block = playback.places.block
    chosen = np.flatnonzero(playback.first[block] < playback.end[block])
    table = np.zeros(len(chosen), _PART)
    table["kind"], table["number"] = _USED, chosen
    table["begin"], table["end"] = playback.places.begin[chosen], playback.places.end[chosen]
    table["first"], table["last"] = playback.first[block[chosen]], playback.end[block[chosen]]
    table["stream"] = playback.seen.lives.stream[block[chosen]]
    table["pool"] = playback.block_pools[block[chosen]]
    return table


def _free(playback: Playback) -> NDArray[np.void]:
    """Return each free piece once for consecutive moments at which it is unchanged."""
    tables = [np.zeros(0, _PART)]
    for moment, free in enumerate(playback.free):
        one = np.zeros(len(free.begin), _PART)
        for name in ("begin", "end", "before", "behind", "stream", "pool"):
            one[name] = getattr(free, name)
        one["first"] = moment
        tables.append(one)
    table = np.concatenate(tables)
    if not len(table):
        return table
    table["kind"] = _FREE
    same = ("begin", "end", "before", "behind")
    # Equal pieces side by side, in the order of their moments: by one number, made of all four.
    key = np.zeros(len(table), np.uint64)
    for name in same:
        key = (key ^ table[name].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    table = table[np.argsort(key, kind="stable")]
    is_new = np.concatenate([[True], np.diff(table["first"]) != 1])
    for name in same:
        is_new[1:] |= table[name][1:] != table[name][:-1]
    firsts = np.flatnonzero(is_new)
    lasts = np.append(firsts[1:], len(table)) - 1
    result = table[firsts]
    result["last"] = table["first"][lasts] + 1
    return result[np.lexsort((result["first"], *(result[name] for name in same)))]


def _largest(table: NDArray[np.void], shown: int) -> tuple[NDArray[np.void], list[str]]:
    """Choose the largest: first of the moment that is shown, then of others."""
    is_shown = (table["first"] <= shown) & (table["last"] > shown)
    order = np.lexsort((table["begin"] - table["end"], ~is_shown))
    is_held = table["kind"][order] == _HELD
    kept = np.concatenate([order[is_held][:MOST_HELD], order[~is_held][:MOST_PIECES]])
    notes = []
    rest = np.setdiff1d(order, kept)
    if len(rest):
        size = format_size(int((table["end"] - table["begin"])[rest].max()))
        notes.append(f"{len(rest):,} small pieces of all moments are not drawn, of up to {size}")
    return table[np.sort(kept)], notes


def _piece(playback: Playback, classes: Classes, row: NDArray[np.void]) -> Piece:
    size, kind = int(row["end"] - row["begin"]), int(row["kind"])
    key, label, before, behind = "free", "", "", ""
    if kind == _USED:
        block = int(playback.places.block[row["number"]])
        key, label = classes.names[int(classes.of_id[block])], _block(playback, block)
    elif kind == _FREE:
        before, behind = (_neighbour(playback, int(row[name])) for name in ("before", "behind"))
    else:
        label = f"held since {playback.when(int(playback.held['born'][row['number']]))}"
    return Piece(
        address=int(row["begin"]),
        size_bytes=size,
        kind=("held", "used", "free")[kind],
        key=key,
        stream=int(row["stream"]),
        pool=playback.pool_name(int(row["pool"])),
        label=label,
        before=before,
        behind=behind,
        first=int(row["first"]),
        end=int(row["last"]),
    )


def _block(playback: Playback, block: int) -> str:
    lives = playback.seen.lives
    name = playback.lines.name(int(lives.site[block]))
    size = format_size(int(lives.requested_bytes[block]))
    since = playback.when(int(lives.born[block]))
    return f"{size} asked for{f' at {name}' if name else ''}, since {since}"


def _neighbour(playback: Playback, part: int) -> str:
    """Return the neighbour that keeps a free piece from growing on that side."""
    return (
        _block(playback, int(playback.places.block[part]))
        if part >= 0
        else "the edge of what is held"
    )


def _rows(
    table: NDArray[np.void], pieces: list[Piece]
) -> tuple[tuple[tuple[Piece, ...], ...], int]:
    """Return the stretches, and how many were left out.

    Each begins with a piece that is as long as it.
    """
    order = np.argsort(table["begin"], kind="stable")
    begins, reach = table["begin"][order], np.maximum.accumulate(table["end"][order])
    is_first = np.concatenate([[True], begins[1:] - reach[:-1] > _LARGEST_GAP])
    low = begins[is_first]
    high = reach[np.concatenate([is_first[1:], [True]])]
    rows: list[list[Piece]] = [
        [Piece(begin, end - begin, "absent")]
        for begin, end in zip(low.tolist(), high.tolist(), strict=True)
    ]
    places = np.searchsorted(low, [piece.address for piece in pieces], side="right") - 1
    for place, piece in zip(places.tolist(), pieces, strict=True):
        rows[place].append(piece)
    left_out = max(len(rows) - MOST_ROWS, 0)
    if left_out:
        rows.sort(key=lambda row: -row[0].size_bytes)
        rows = sorted(rows[:MOST_ROWS], key=lambda row: row[0].address)
    return tuple(tuple(row) for row in rows), left_out


def _views(seen: DeviceSnapshot) -> tuple[tuple[View, ...], str]:
    numbers = np.flatnonzero(seen.spans["kind"] == SpanKind.VIEW)
    order = np.argsort(-seen.spans["size_bytes"][numbers].astype(np.int64), kind="stable")
    used = np.bincount(
        seen.ranges["span"][seen.ranges["is_used"]], minlength=max(len(seen.spans), 1)
    )
    by_span: dict[int, list[tuple[int, int, int]]] = {}
    for address, base, size, span in seen.pieces.tolist():
        by_span.setdefault(span, []).append((address, base, size))
    views: list[View] = []
    left = MOST_VIEW_PIECES
    for number in numbers[order[:MOST_VIEWS]].tolist():
        span = seen.spans[number]
        pieces = by_span.get(number, [])[:left]
        left -= len(pieces)
        size = format_size(int(span["size_bytes"]))
        views.append(
            View(
                address=int(span["address"]),
                size_bytes=int(span["size_bytes"]),
                is_live=bool(used[number]),
                pieces=tuple(pieces),
                label=f"view of {size}",
            )
        )
    hidden = len(numbers) - len(views)
    note = f"the {hidden:,} smallest views are not drawn" if hidden > 0 else ""
    if left == 0:
        note += ("; " if note else "") + "of some views not every piece is drawn"
    return tuple(views), note
