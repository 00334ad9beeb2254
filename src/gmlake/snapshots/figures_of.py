"""Figures of snapshots: a few thousand points, whatever there was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES, Block, Blocks, Mark, Report, Timeline
from gmlake.snapshots.maps import address_map
from gmlake.snapshots.model import DeviceSnapshot, Site
from gmlake.snapshots.packings import MOST_LARGE, packing_of_lives
from gmlake.trace.layout import Kind
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gmlake.pictures.figures import Figure, Numbers
    from gmlake.snapshots.whole import Snapshot
    from gmlake.trace.trace import Trace

MOST_POINTS: Final = 2000
"""Of a timeline."""

MOST_ROWS: Final = 2000
"""Of a list of blocks, or of those of all devices together."""

MOST_MARKS: Final = 1000

MOST_DEVICES: Final = 16

_PATH_CHARACTERS: Final = 3 << 20  # of all call paths on a page: each is there once per row
_LEAST_ROWS: Final = 200  # of each device
_LONGEST_LABEL: Final = 200
_NS: Final = 1e9


def report_of_snapshot(source: Snapshot) -> Report:
    """Return what there is to draw of a snapshot."""
    figures: list[Figure] = []
    facts: list[tuple[str, str]] = []
    drawn = _drawn(source.devices)
    for one in drawn:
        name = f"Device {one.device}: " if len(source.devices) > 1 else ""
        facts += [(f"{name}{what}", value) for what, value in _facts(one)]
        if len(one.events):
            figures.append(timeline_of(one, f"{name}memory over time"))
        if len(one.ranges):
            figures.append(address_map(one, source.sites, f"{name}addresses at the end"))
        most = max(MOST_ROWS // len(drawn), _LEAST_ROWS)
        rows = blocks_at_peak(one, source.sites, f"{name}live at the peak", most)
        if rows.rows:
            figures.append(_with_short_paths(rows, _PATH_CHARACTERS // len(drawn)))
        packing = packing_of_lives(
            one,
            source.sites,
            times_of(one.trace),
            f"{name}blocks over time",
            max(MOST_LARGE // len(drawn), _LEAST_ROWS),
        )
        if packing is not None:
            figures.append(packing)
    left_out = len(source.devices) - len(drawn)
    if left_out:
        facts.append(("not drawn", f"{left_out:,} more devices; choose one by --device"))
    return Report(source.name or "Memory", tuple(facts), tuple(figures))


def _drawn(devices: tuple[DeviceSnapshot, ...]) -> list[DeviceSnapshot]:
    """Return the devices to draw, in their order: those that hold or did the most."""
    busiest = sorted(devices, key=lambda one: -len(one.events) - len(one.ranges))
    return sorted(busiest[:MOST_DEVICES], key=lambda one: one.device)


def _with_short_paths(blocks: Blocks, most: int) -> Blocks:
    """Leave out the call paths of the smallest rows where all have more than `most` characters."""
    lengths = np.cumsum([sum(map(len, row.frames)) for row in blocks.rows])
    kept = int(np.searchsorted(lengths, most, side="right"))
    if kept == len(blocks.rows):
        return blocks
    rows = [*blocks.rows[:kept], *(replace(row, frames=()) for row in blocks.rows[kept:])]
    note = f"the call paths of the {len(rows) - kept:,} smallest rows are left out"
    return replace(blocks, rows=tuple(rows), note="; ".join(filter(None, (blocks.note, note))))


def _facts(seen: DeviceSnapshot) -> Iterator[tuple[str, str]]:
    if len(seen.ranges) or seen.counters:
        yield "live at the end", format_size(seen.live_bytes)
        yield "reserved at the end", format_size(seen.reserved_bytes)
        yield "fragmentation", f"{seen.fragmentation:.1%} of {format_size(seen.free_bytes)} free"
    peak = seen.peak
    if len(seen.events) or peak.live_bytes:
        text = format_size(peak.live_bytes)
        if not peak.is_whole:
            text += f"; {format_size(peak.earlier_bytes)} before the events that were kept"
        yield "live at the peak", text
    if seen.total_events > len(seen.events):
        yield "events", f"the last {len(seen.events):,} of {seen.total_events:,}"
    elif len(seen.events):
        yield "events", f"{len(seen.events):,}"


def times_of(trace: Trace) -> tuple[Numbers, str]:
    """Return when each event was, from the first on, ascending, and in what unit.

    In "seconds"; where no times were recorded, in "events".
    """
    times = trace.requests["time_ns"]
    known = times[times > 0]
    if not len(known):
        return np.arange(len(times), dtype=np.float64), "events"
    latest = np.maximum.accumulate(np.maximum(times, known[0]))
    return (latest - latest[0]).astype(np.float64) / _NS, "seconds"


def reserved_behind(seen: DeviceSnapshot) -> NDArray[np.int64] | None:
    """Return what was held from the driver behind each event; None where that is not told."""
    kind, sizes = seen.events["kind"], seen.events["size_bytes"].astype(np.int64)
    if not seen.has_reserved_events:
        return None
    change = np.where(kind == Kind.SEGMENT_ALLOC, sizes, 0)
    change -= np.where(kind == Kind.SEGMENT_FREE, sizes, 0)
    held = np.cumsum(change)
    end = int(seen.reserved_bytes)
    result: NDArray[np.int64] = np.maximum(end - (held[-1] if len(held) else 0) + held, 0)
    return result


def timeline_of(seen: DeviceSnapshot, title: str) -> Timeline:
    """Return live bytes by category; of each stretch of events its highest and lowest point."""
    lives, rows = seen.lives, len(seen.events)
    seconds, unit = times_of(seen.trace)
    chosen, stretch = turning_points(lives.live_bytes)
    notes = []
    if stretch > 1:
        notes.append(
            f"{rows:,} events: each stretch of {stretch:,} is drawn as its highest and lowest point"
        )
    live: dict[str, Numbers] = {}
    owners = np.zeros(rows, np.int64)
    is_change = lives.change != 0
    owners[is_change] = seen.events["id"][is_change]
    of_event = np.where(is_change, seen.categories[owners], -1) if len(seen.categories) else None
    for number, name in enumerate(CATEGORIES):
        is_start = (lives.born < 0) & (seen.categories == number)
        start = int(lives.size_bytes[is_start].sum())
        change = np.where(of_event == number, lives.change, 0) if of_event is not None else 0
        column = start + np.cumsum(np.broadcast_to(change, (rows,)))
        if start or column.any():
            live[name] = column[chosen].astype(np.float64)
    reserved = reserved_behind(seen)
    if reserved is None:
        notes.append("the recording does not say what was reserved when")
    marks, mark_note = _marks(seen, seconds)
    notes += [mark_note] if mark_note else []
    return Timeline(
        title=title,
        seconds=seconds[chosen],
        live=live or {"unknown": np.zeros(len(chosen))},
        reserved=None if reserved is None else _highest(reserved, chosen).astype(np.float64),
        marks=marks,
        note="; ".join(notes),
        unit=unit,
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
    """Return at each chosen row the highest value since the one before it."""
    if not len(chosen):
        return values
    begins = np.concatenate([[0], chosen[:-1] + 1])
    result: NDArray[np.int64] = np.maximum.reduceat(values[: chosen[-1] + 1], begins)
    return result


def _marks(seen: DeviceSnapshot, seconds: Numbers) -> tuple[tuple[Mark, ...], str]:
    kind = seen.events["kind"]
    rows = np.flatnonzero((kind == Kind.MARK) | (kind == Kind.OOM))
    note = ""
    if len(rows) > MOST_MARKS:
        note = (
            f"{MOST_MARKS:,} of {len(rows):,} marks are drawn, evenly chosen; every refusal first"
        )
        refused, other = rows[kind[rows] == Kind.OOM], rows[kind[rows] != Kind.OOM]
        left = max(MOST_MARKS - len(refused), 0)
        pick = np.linspace(0, max(len(other) - 1, 0), left).astype(np.int64)
        evenly = other[pick] if len(other) else other
        rows = np.unique(np.concatenate([refused[:MOST_MARKS], evenly]))
    marks = []
    for row in rows.tolist():
        event = seen.events[row]
        if event["kind"] == Kind.OOM:
            text = f"{format_size(int(event['size_bytes']))} refused"
            marks.append(Mark(float(seconds[row]), "out of memory", text))
            continue
        number, labels = int(event["id"]), seen.trace.labels
        label = labels[number][:_LONGEST_LABEL] if number < len(labels) else f"mark {number}"
        is_step = "step" in label.lower() or not labels
        marks.append(Mark(float(seconds[row]), "step" if is_step else "phase", label))
    return tuple(marks), note


def blocks_at_peak(
    seen: DeviceSnapshot, sites: dict[int, Site], title: str, most: int = MOST_ROWS
) -> Blocks:
    """Return what was live at the peak: blocks of one place, size and category put together."""
    lives, ids = seen.lives, seen.peak.ids
    if not len(ids):
        return Blocks(title, (), 0)
    keys = np.stack(
        [
            lives.requested_bytes[ids],
            lives.site[ids].view(np.int64),
            seen.categories[ids].astype(np.int64),
            lives.stream[ids].view(np.int64),
        ]
    )
    _, first, count = np.unique(keys, axis=1, return_index=True, return_counts=True)
    total = lives.size_bytes[ids[first]] * count
    order = np.lexsort((first, -total))
    rows = [
        _block(seen, sites, int(ids[first[place]]), int(count[place]))
        for place in order[:most].tolist()
    ]
    notes = [] if int(count.max()) == 1 else ["blocks of one size and place are one row"]
    rest = order[most:]
    if len(rest):
        rest_bytes, rest_count = int(total[rest].sum()), int(count[rest].sum())
        rows.append(Block(rest_bytes, rest_count, "unknown", f"{len(rest):,} smaller rows"))
        notes.append(f"the {len(rest):,} smallest rows are the last one")
    if not seen.peak.is_whole:
        notes.append("there was a higher peak before the events that were kept")
    rows.sort(key=lambda row: -row.size_bytes)
    return Blocks(title, tuple(rows), seen.peak.live_bytes, "; ".join(notes))


def _block(seen: DeviceSnapshot, sites: dict[int, Site], number: int, count: int) -> Block:
    lives = seen.lives
    site = sites.get(int(lives.site[number]), Site())
    name = str(site)
    if not name and int(lives.born[number]) < 0:
        name = "before the recording"
    return Block(
        size_bytes=int(lives.size_bytes[number]) * count,
        count=count,
        category=CATEGORIES[int(seen.categories[number])],
        site=name,
        frames=site.frames,
        address=int(lives.address[number]) if count == 1 else 0,
        stream=int(lives.stream[number]),
    )
