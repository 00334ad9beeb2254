"""Figures of snapshots: a few thousand points, however long the recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import (
    CATEGORIES,
    Block,
    Blocks,
    Figure,
    Mark,
    Numbers,
    Report,
    Summary,
    Timeline,
)
from gmlake.printable import printable
from gmlake.snapshots.classes import Classes, classes_of, distinct
from gmlake.snapshots.inferred import with_categories
from gmlake.snapshots.maps import address_map
from gmlake.snapshots.model import DeviceSnapshot, in_order
from gmlake.snapshots.moments import Playback, counted, evenly
from gmlake.snapshots.packings import MOST_LARGE, packing_of_lives
from gmlake.snapshots.sites import OwnLines, told_apart
from gmlake.trace.layout import Kind
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.whole import Snapshot

MOST_POINTS: Final = 2000
"""Of a timeline."""

MOST_ROWS: Final = 2000
"""Of a list of blocks, or of those of all devices together."""

MOST_FOLLOWING: Final = 400
"""Rows of a list of blocks that cover every moment."""

MOST_MARKS: Final = 1000

MOST_DEVICES: Final = 16

_PATH_CHARACTERS: Final = 3 << 20  # of all call paths on a page: each is there once per row
_LEAST_ROWS: Final = 200  # of each device


def report_of_snapshot(source: Snapshot) -> Report:
    """Return the figures of a snapshot."""
    figures: list[Figure] = []
    facts: list[tuple[str, str]] = []
    summaries: list[Summary] = []
    is_one = len(source.devices) == 1
    drawn = in_order(source.devices)[:MOST_DEVICES]
    lines = OwnLines(source.sites)
    for one in drawn:
        name = "" if is_one else f"Device {one.device}: "
        if one is drawn[0]:  # the others have their summaries
            facts += [(f"{name}{what}", value) for what, value in _facts(one)]
        seen, said = with_categories(one, lines)
        turns = turning_points(seen.lives.live_bytes)
        playback = Playback(seen, lines, turns[0])
        figures += _figures(playback, turns, said, name, len(drawn))
        if not is_one:
            summaries.append(_summary(playback))
    left_out = len(source.devices) - len(drawn)
    if left_out:
        facts.append(("not drawn", f"{left_out:,} more devices; choose one with --device"))
    return Report(source.name or "Memory", tuple(facts), tuple(figures), tuple(summaries))


def _summary(playback: Playback) -> Summary:
    """Return one of several devices in a line."""
    seen = playback.seen
    state = playback.state_at(int(np.searchsorted(playback.rows, seen.peak.row)))
    said = f"{format_size(seen.peak.live_bytes)} live at the peak"
    if state.held_bytes is not None:
        said += f", {format_size(state.held_bytes)} held"
    refused = len(seen.refusals)
    said += f", {counted(refused, 'request') if refused else 'nothing'} refused"
    return Summary(f"Device {seen.device}", said, seen.device + 1, is_refused=refused > 0)


def _figures(
    playback: Playback, turns: tuple[NDArray[np.int64], int], said: str, name: str, devices: int
) -> Iterator[Figure]:
    """Yield the pictures of one device, all about the moment that matters first."""
    seen = playback.seen
    group = seen.device + 1
    classes = classes_of(seen, playback.owners, np.union1d(playback.shown_ids, seen.peak.ids))
    if len(seen.events) or len(playback.shown_ids):
        yield playback.describe(f"{name}memory", group)
    if len(seen.events):
        timeline = timeline_of(playback, classes, turns, f"{name}memory over time", group)
        yield replace(timeline, note="; ".join(filter(None, (said, timeline.note))))
    drawn = address_map(playback, classes, f"{name}addresses", group)
    if drawn is not None:
        yield drawn
    most = max(MOST_ROWS // devices, _LEAST_ROWS)
    rows = blocks_of(playback, f"{name}live", most, group)
    if rows.rows:
        yield _with_short_paths(rows, _PATH_CHARACTERS // devices)
    packing = packing_of_lives(
        playback, classes, f"{name}blocks over time", max(MOST_LARGE // devices, _LEAST_ROWS), group
    )
    if packing is not None:
        yield packing


def _with_short_paths(blocks: Blocks, most: int) -> Blocks:
    """Drop the call paths of the smallest rows if all have more than `most` characters."""
    lengths = np.cumsum([sum(map(len, row.frames)) for row in blocks.rows])
    kept = int(np.searchsorted(lengths, most, side="right"))
    if kept == len(blocks.rows):
        return blocks
    rows = [*blocks.rows[:kept], *(replace(row, frames=()) for row in blocks.rows[kept:])]
    note = f"the call paths of the {len(rows) - kept:,} smallest rows are left out"
    return replace(blocks, rows=tuple(rows), note="; ".join(filter(None, (blocks.note, note))))


def _facts(seen: DeviceSnapshot) -> Iterator[tuple[str, str]]:
    if name := seen.trace.device_name:
        yield "device", printable(name)
    if len(seen.ranges) or seen.counters:
        yield "live at the end", format_size(seen.live_bytes)
        yield "reserved at the end", format_size(seen.reserved_bytes)
        yield (
            "fragmentation",
            f"{format_share(seen.fragmentation)} of {format_size(seen.free_bytes)} free",
        )
        yield from shares_of(seen)
    peak = seen.peak
    if len(seen.events) or peak.live_bytes:
        text = format_size(peak.live_bytes)
        if not peak.is_whole:
            text += f"; {format_size(peak.earlier_bytes)} before the events that were kept"
        yield "live at the peak", text
    if len(seen.events):
        yield "events", f"{len(seen.events):,}"


_SHARES: Final = {
    "regions_bytes": "regions that are awake",
    "pytorch_bytes": "PyTorch's own allocator",
    "other_bytes": "all else on the device",
    "device_free_bytes": "left on the device",
}
"""By their counters. All else: contexts of CUDA, NCCL, other processes."""


def shares_of(seen: DeviceSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the shares of the device that are not gmlake's, if they were recorded."""
    if seen.counters.get("device_bytes"):
        for name, text in _SHARES.items():
            size_bytes = int(seen.counters.get(name, 0))
            if size_bytes or name != "regions_bytes":  # most programs have none
                yield text, format_size(size_bytes)


def reserved_behind(seen: DeviceSnapshot) -> NDArray[np.int64] | None:
    """Return the reserved bytes after each event; None if they are not recorded."""
    if not seen.has_reserved_events:
        return None
    kind = seen.events["kind"]
    change = np.zeros(len(kind), np.int64)
    for which, sign in ((Kind.SEGMENT_ALLOC, 1), (Kind.SEGMENT_FREE, -1)):
        rows = np.flatnonzero(kind == which)
        change[rows] = sign * seen.events["size_bytes"][rows].astype(np.int64)
    held = np.cumsum(change)
    end = int(seen.reserved_bytes)
    result: NDArray[np.int64] = np.maximum(end - (held[-1] if len(held) else 0) + held, 0)
    return result


def timeline_of(
    playback: Playback,
    classes: Classes,
    turns: tuple[NDArray[np.int64], int],
    title: str,
    group: int,
) -> Timeline:
    """Return live bytes by class; of each stretch of events its highest and lowest point."""
    seen = playback.seen
    lives, rows = seen.lives, len(seen.events)
    chosen, stretch = turns
    notes = []
    if stretch > 1:
        notes.append(
            f"{rows:,} events: each stretch of {stretch:,} is drawn as its highest and lowest point"
        )
    live: dict[str, Numbers] = {}
    owners = np.zeros(rows, np.int64)
    is_change = lives.change != 0
    owners[is_change] = seen.events["id"][is_change]
    of_event = np.full(rows, -1)
    if len(classes.of_id):
        of_event = np.where(is_change, classes.of_id[owners], -1)
    begins = np.concatenate([[0], chosen[:-1] + 1])
    present = np.bincount(classes.of_id, minlength=len(classes.names)) > 0
    for number, name in enumerate(classes.names):
        if not present[number]:
            continue
        is_start = (lives.born < 0) & (classes.of_id == number)
        start = int(lives.size_bytes[is_start].sum())
        is_it = of_event == number
        if start or is_it.any():
            change = np.add.reduceat(np.where(is_it, lives.change, 0), begins)
            live[name] = (start + np.cumsum(change)).astype(np.float64)
    reserved = reserved_behind(seen)
    if reserved is None:
        notes.append("the recording has no reserved memory over time")
    marks, mark_note = _marks(playback)
    notes += [mark_note] if mark_note else []
    return Timeline(
        title=title,
        at=chosen.astype(np.float64),
        live=live or {"unknown": np.zeros(len(chosen))},
        reserved=None if reserved is None else _highest(reserved, chosen).astype(np.float64),
        marks=marks,
        note="; ".join(notes),
        seconds=None if playback.seconds is None else playback.seconds[chosen],
        group=group,
    )


def turning_points(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the rows to draw, and how many events one stretch has."""
    rows = len(values)
    if rows <= MOST_POINTS:
        return np.arange(rows), 1
    stretch = -(-rows // (MOST_POINTS // 2))
    whole = rows // stretch * stretch
    table = values[:whole].reshape(-1, stretch)
    base = np.arange(0, whole, stretch)
    found = [base + table.argmax(axis=1), base + table.argmin(axis=1), [0, rows - 1]]
    if whole < rows:
        found += [[whole + int(values[whole:].argmax())], [whole + int(values[whole:].argmin())]]
    chosen: NDArray[np.int64] = np.unique(np.concatenate(found).astype(np.int64))
    return chosen, stretch


def _highest(values: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each chosen row the highest value since the previous one."""
    if not len(chosen):
        return values
    begins = np.concatenate([[0], chosen[:-1] + 1])
    result: NDArray[np.int64] = np.maximum.reduceat(values[: chosen[-1] + 1], begins)
    return result


def _marks(playback: Playback) -> tuple[tuple[Mark, ...], str]:
    seen, seconds = playback.seen, playback.seconds
    kind = seen.events["kind"]
    rows = np.flatnonzero((kind == Kind.MARK) | (kind == Kind.OOM))
    note = ""
    if len(rows) > MOST_MARKS:
        note = (
            f"{MOST_MARKS:,} of {len(rows):,} marks are drawn, evenly chosen; every refusal first"
        )
        refused, other = rows[kind[rows] == Kind.OOM], rows[kind[rows] != Kind.OOM]
        left = max(MOST_MARKS - len(refused), 0)
        rows = np.unique(np.concatenate([refused[:MOST_MARKS], evenly(other, left)]))
    marks = []
    for row in rows.tolist():
        event = seen.events[row]
        time = None if seconds is None else float(seconds[row])
        if event["kind"] == Kind.OOM:
            text = f"{format_size(int(event['size_bytes']))} refused"
            marks.append(Mark(row, "out of memory", text, time))
            continue
        label = playback.label(row)
        is_step = "step" in label.lower() or not seen.trace.labels
        marks.append(Mark(row, "step" if is_step else "phase", label, time))
    return tuple(marks), note


def blocks_of(playback: Playback, topic: str, most: int = MOST_ROWS, group: int = 0) -> Blocks:
    """Return the live blocks at the moment that matters, and the largest ones' counts at others.

    Blocks of one place, size and category are merged.
    """
    seen, shown = playback.seen, playback.shown
    title = f"{topic} {playback.name(shown)}"
    ids = np.flatnonzero(playback.first < playback.end)
    if not len(ids):
        return Blocks(title, (), 0, topic=topic, group=group)
    of_id, one, count = merged_blocks(playback, ids)
    sizes = seen.lives.size_bytes[ids[one]]
    order = np.lexsort((one, -sizes * count))
    drawn, rest = order[:most], order[most:]
    follows = np.argsort(-sizes * np.bincount(of_id), kind="stable")[: min(MOST_FOLLOWING, most)]
    drawn = np.concatenate([drawn[count[drawn] > 0], follows[count[follows] == 0]])
    counts = _counts(playback, ids, of_id, follows)
    rows = block_rows(
        playback,
        ids[one[drawn]].tolist(),
        count[drawn].tolist(),
        [counts.get(place, ()) for place in drawn.tolist()],
    )
    notes = [] if int(count.max()) <= 1 else ["blocks of one size and place are one row"]
    rest = rest[count[rest] > 0]
    if len(rest):
        rest_bytes, rest_count = int((sizes * count)[rest].sum()), int(count[rest].sum())
        rows.append(Block(rest_bytes, rest_count, "unknown", f"{len(rest):,} smaller rows"))
        notes.append(f"the {len(rest):,} smallest rows are the last one")
    if len(one) > len(follows):
        notes.append(f"of other moments the {len(follows):,} largest rows are shown")
    if not seen.peak.is_whole:
        notes.append("there was a higher peak before the events that were kept")
    rows.sort(key=lambda row: -row.size_bytes)
    total = int((sizes * count).sum())
    return Blocks(title, tuple(rows), total, "; ".join(notes), topic, group)


def merged_blocks(
    playback: Playback, ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Merge blocks of one place, size, category, stream and pool into groups.

    Return the group of each block, and for each group the place among `ids` of the block that
    represents it, and how many of it are live at the moment that matters.
    """
    seen, shown, lives = playback.seen, playback.shown, playback.seen.lives
    key = np.zeros(len(ids), np.int64)
    for column in (
        *(lives.size_bytes, lives.site, seen.categories, lives.stream),
        playback.block_pools,
    ):
        values, place = distinct(column[ids])
        if len(values) > 1:
            key = distinct(key * len(values) + place)[1] if key.any() else place
    one = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    one[key[::-1]] = np.arange(len(ids))[::-1]  # the first of each
    is_shown = (playback.first[ids] <= shown) & (playback.end[ids] > shown)
    count = np.bincount(key[is_shown], minlength=len(one))
    # The shown one represents its group: its address is named if it is alone.
    one[key[is_shown][::-1]] = np.flatnonzero(is_shown)[::-1]
    return key, one, count


def _counts(
    playback: Playback, ids: NDArray[np.int64], of_id: NDArray[np.int64], chosen: NDArray[np.int64]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return for each chosen group its block counts, each with the moment it begins."""
    place = np.full(int(of_id.max(initial=0)) + 1, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    of_row = place[of_id]
    is_it = of_row >= 0
    change = np.zeros((len(chosen), len(playback.rows) + 1), np.int64)
    np.add.at(change, (of_row[is_it], playback.first[ids[is_it]]), 1)
    np.add.at(change, (of_row[is_it], playback.end[ids[is_it]]), -1)
    behind = np.cumsum(change, axis=1)[:, :-1]
    change[:, 0] = 1  # what is there from the first moment on, or not
    result = {}
    for number, row in zip(chosen.tolist(), range(len(chosen)), strict=True):
        moments = np.flatnonzero(change[row, :-1])
        pairs = zip(moments.tolist(), behind[row, moments].tolist(), strict=True)
        result[number] = tuple(pairs)
    return result


def block_rows(
    playback: Playback,
    blocks: Sequence[int],
    count: Sequence[int],
    counts: Sequence[tuple[tuple[int, int], ...]],
) -> list[Block]:
    """Return so many blocks like each of these as a row of a table, no two alike."""
    rows = [_block_row(playback, *each) for each in zip(blocks, count, counts, strict=True)]

    def details(alike: Sequence[int]) -> Iterator[Sequence[str]]:
        yield [f"stream {rows[row].stream}" for row in alike]
        yield [rows[row].pool for row in alike]
        yield playback.lines.apart([int(playback.seen.lives.site[blocks[row]]) for row in alike])
        yield [f"{rows[row].one_bytes:,} B each" for row in alike]

    columns = [(row.category, format_size(row.one_bytes)) for row in rows]
    names = told_apart([row.site for row in rows], columns, details)
    return [replace(row, site=name) for row, name in zip(rows, names, strict=True)]


def _block_row(
    playback: Playback, number: int, count: int, counts: tuple[tuple[int, int], ...]
) -> Block:
    lives, lines = playback.seen.lives, playback.lines
    site = int(lives.site[number])
    name = lines.name(site) or playback.owners.names[int(playback.owners.of_id[number])]
    return Block(
        size_bytes=int(lives.size_bytes[number]) * count,
        count=count,
        category=CATEGORIES[int(playback.seen.categories[number])],
        site=name,
        frames=lines.frames(site),
        address=int(lives.address[number]) if count == 1 else 0,
        stream=int(lives.stream[number]),
        pool=playback.pool_name(int(playback.block_pools[number])),
        counts=counts,
        one_bytes=int(lives.size_bytes[number]),
    )
