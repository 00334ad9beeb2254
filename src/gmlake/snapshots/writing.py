"""Writes PyTorch's snapshot format, as its viewers accept it.

The viewer unwinds the events backwards from the final state, and fails if a block is outside every
segment that it has by then. So memory that is outside the final segments gets a segment for as long
as it lived: a view while it held blocks, else the block itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.entries import ADDED
from gmlake.snapshots.model import UNKNOWN, DeviceSnapshot, SpanKind
from gmlake.snapshots.peaks import BEFORE
from gmlake.snapshots.pools import NO_POOL
from gmlake.snapshots.sites import Site
from gmlake.snapshots.spans import Spans
from gmlake.snapshots.traces import of_trace, with_addresses
from gmlake.trace.layout import Kind, Records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from gmlake.trace.trace import Trace

    Entry = dict[str, Any]

_ACTIONS: Final = {
    Kind.ALLOC: "alloc",
    Kind.FREE: "free_completed",
    Kind.FREE_REQUESTED: "free_requested",
    Kind.SEGMENT_ALLOC: "segment_alloc",
    Kind.SEGMENT_FREE: "segment_free",
    Kind.OOM: "oom",
}
_PLAIN: Final = ("segment_alloc", "segment_free")
_EXPANDABLE: Final = {
    Kind.SEGMENT_ALLOC: "segment_map",
    Kind.SEGMENT_FREE: "segment_unmap",
}
SHOWN_KINDS: Final = tuple(_ACTIONS)
"""The kinds of events that have a counterpart in the format."""

SEGMENT_KINDS: Final = (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
PART: Final = "gmlake_part"
"""A key of events that are only a part of one recorded event."""

_OF_BLOCKS: Final = (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED)
_NS_PER_US: Final = 1000
_SIGN: Final = 1 << 63


def snapshot_of(trace: Trace) -> dict[str, Any]:
    """Return a trace as a snapshot, as plain data; TRIM and MARK have no counterpart there.

    Raises TraceError for one that contradicts itself, or needs too many addresses.
    """
    seen = of_trace(with_addresses(trace))
    frames = Frames({})
    events: list[list[Entry]] = [[] for _ in range(trace.device + 1)]
    events[trace.device], _ = events_of(seen, frames)
    return document_of(segments_of(seen, frames), events, trace.settings)


def document_of(
    segments: list[Entry], events: list[list[Entry]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a whole snapshot. events: of each device."""
    return {
        "segments": segments,
        "device_traces": events,
        "allocator_settings": dict(settings),
        "external_annotations": [],
    }


# ---- segments


class Drawn:
    """The final memory of a device as drawn: contiguous runs of ranges, each in one span.

    runs: (span, first range, range after the last). base: the same as (begin, end) addresses,
    without views and pools.
    """

    def __init__(self, seen: DeviceSnapshot) -> None:
        """Leave out memory drawn elsewhere: idle views, and the base ranges of views."""
        ranges, kinds = seen.ranges, seen.spans["kind"]
        is_lent = ranges["is_used"] & (ranges["requested_bytes"] == 0)
        is_live = np.zeros(len(kinds), np.bool_)
        is_live[ranges["span"][ranges["is_used"]]] = True
        is_drawn = is_live | (kinds != SpanKind.VIEW)
        shown = is_drawn[ranges["span"]] & ~is_lent & (ranges["size_bytes"] > 0)
        rows = np.flatnonzero(shown)
        ends = ranges["address"] + ranges["size_bytes"]
        follows = (np.diff(rows) == 1) & (np.diff(ranges["span"][rows].astype(np.int64)) == 0)
        follows &= ends[rows[:-1]] == ranges["address"][rows[1:]]
        first = rows[np.concatenate([[True], ~follows])] if len(rows) else rows
        last = rows[np.concatenate([~follows, [True]])] if len(rows) else rows
        self.first, self.behind = first, last + 1
        self.span = ranges["span"][first]
        is_base = kinds[self.span] != SpanKind.VIEW
        order = np.argsort(ranges["address"][first[is_base]], kind="stable")
        self.begin = ranges["address"][first[is_base]][order]
        self.end = ends[last[is_base]][order]

    def covers(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which addresses lie in drawn memory, views left out."""
        return _inside(addresses, self.begin, self.end)


def _inside(
    addresses: NDArray[np.uint64], begin: NDArray[np.uint64], end: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Return which addresses lie in one of the ranges, which ascend and do not overlap."""
    if not len(begin):
        return np.zeros(len(addresses), np.bool_)
    place = np.searchsorted(begin, addresses, side="right").astype(np.int64) - 1
    result: NDArray[np.bool_] = (place >= 0) & (addresses < end[np.maximum(place, 0)])
    return result


class Frames:
    """Call paths in the format's form; the same list for the same site."""

    def __init__(self, sites: dict[int, Site]) -> None:
        self._sites = sites
        self._made: dict[int, list[Entry]] = {0: []}

    def of(self, number: int) -> list[Entry]:
        """Return the frames of a site: innermost first; one for the scope where there are none."""
        made = self._made.get(number)
        if made is None:
            site = self._sites.get(number, Site())
            frames = [_frame(text) for text in site.frames]
            if site.scope or site.phase:
                frames.append({"name": site.scope, "filename": site.phase, "line": 0})
            made = self._made[number] = frames
        return made


def _frame(text: str) -> Entry:
    name, _, place = text.partition("  ")
    file, _, line = place.rpartition(":")
    if not line.isdecimal() or len(line) > 9:  # noqa: PLR2004 (digits that surely fit)
        return {"name": name, "filename": place, "line": 0}
    return {"name": name, "filename": file, "line": int(line)}


def segments_of(seen: DeviceSnapshot, frames: Frames) -> list[Entry]:
    """Return the segments in address order."""
    lives = seen.lives
    pending = lives.address[lives.let_go & (lives.died == len(seen.events))]
    drawn = Drawn(seen)
    rows = seen.ranges.tolist()
    spans = seen.spans.tolist()
    waiting = frozenset(pending.tolist())
    segments = [
        _segment(seen, spans[span], rows[first:behind], waiting, frames)
        for span, first, behind in zip(
            drawn.span.tolist(), drawn.first.tolist(), drawn.behind.tolist(), strict=True
        )
    ]
    return sorted(segments, key=lambda segment: segment["address"])


def _segment(
    seen: DeviceSnapshot,
    span: tuple[Any, ...],
    rows: list[tuple[Any, ...]],
    waiting: Collection[int],
    frames: Frames,
) -> Entry:
    _, _, stream, owner, number, kind, is_small = span
    used = [row for row in rows if row[6]]
    live_bytes = sum(row[1] for row in used)
    return {
        "device": seen.device,
        "address": rows[0][0],
        "total_size": sum(row[1] for row in rows),
        "allocated_size": live_bytes,
        "active_size": live_bytes,
        "requested_size": sum(row[2] for row in used),
        "stream": signed(stream),
        "segment_type": "small" if is_small else "large",
        "segment_pool_id": (owner, number),
        "is_expandable": kind == SpanKind.SEGMENT and seen.trace.is_expandable,
        "frames": [],
        "blocks": [_block(row, waiting, frames) for row in rows],
    }


def _block(row: tuple[Any, ...], waiting: Collection[int], frames: Frames) -> Entry:
    address, size, requested, site, _, _, is_used = row
    state = "inactive"
    if is_used:
        state = "active_pending_free" if address in waiting else "active_allocated"
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": frames.of(site),
    }


# ---- events


def events_of(
    seen: DeviceSnapshot, frames: Frames, extra: Mapping[str, object] | None = None
) -> tuple[list[Entry], list[int]]:
    """Return the entries, and the rows of the events that have exactly one entry.

    TRIM and MARK have no counterpart; events of memory that is drawn in several places, or in none,
    have as many entries.
    extra: further items of each event.
    """
    has_categories = bool((seen.categories != UNKNOWN).any())
    added = _Additions(seen)
    of_segments = segment_actions(seen, added.unmapped)
    dropped = _unfinished(seen)
    plain = _plain_entries(seen, frames, dict(extra or {}), has_categories=has_categories)
    kinds = seen.events["kind"]
    others = np.flatnonzero(~np.isin(kinds, _OF_BLOCKS)).tolist()
    entries: list[Entry] = list(added.behind.get(BEFORE, ()))
    told: list[int] = []
    end = 0
    for row in sorted({*others, *dropped, *of_segments, *added.before, *added.behind} - {BEFORE}):
        entries += plain[end:row]
        told += range(end, row)
        end = row + 1
        entries += added.before.get(row, ())
        _, size, address, _, _, kind, _ = seen.events[row].item()
        found = of_segments.get(row)
        if found is None:
            action = None if row in dropped else _ACTIONS.get(kind)
            found = [] if action is None else [(action, address, size)]
        is_whole = [part[1:] for part in found] == [(address, size)]
        if is_whole:
            told.append(row)
        for action, begin, part_bytes in found:
            entry = plain[row] | {"action": action, "addr": begin, "size": part_bytes}
            if kind == Kind.OOM:
                entry["device_free"] = entry.pop("addr")
            if not is_whole:
                entry[PART] = True
            entries.append(entry)
        entries += added.behind.get(row, ())
    entries += plain[end:]
    told += range(end, len(plain))
    if has_categories:
        # If there are any categories, the viewer needs one event of the category "unknown".
        entries.append(_closing(seen))
    return entries, told


def _plain_entries(
    seen: DeviceSnapshot, frames: Frames, more: Entry, *, has_categories: bool
) -> list[Entry]:
    """Return an entry for each event, as if all were of blocks; built by columns."""
    events, kinds = seen.events, seen.events["kind"]
    numbers, place = np.unique(seen.event_sites, return_inverse=True)
    paths = [frames.of(number) for number in numbers.tolist()]
    columns = zip(
        [_ACTIONS.get(kind, "") for kind in kinds.tolist()],
        events["address"].tolist(),
        events["size_bytes"].tolist(),
        events["stream"].astype(np.int64).tolist(),  # signed, as the format has it
        (events["time_ns"] // np.uint64(_NS_PER_US)).tolist(),
        [paths[number] for number in place.tolist()],
        strict=True,
    )
    made: list[Entry] = [
        {
            "action": action,
            "addr": address,
            "size": size,
            "stream": stream,
            "time_us": time,
            "frames": path,
            **more,
        }
        for action, address, size, stream, time, path in columns
    ]
    if seen.trace.pools:
        pools = [NO_POOL, *seen.trace.pools]
        for entry, number in zip(made, seen.trace.event_pools.tolist(), strict=True):
            entry["pool_id"] = pools[number]
    for row in np.flatnonzero(seen.event_sites).tolist():
        made[row]["site"] = seen.event_sites.item(row)
    if has_categories:
        is_block = np.isin(kinds, _OF_BLOCKS)
        chosen = seen.categories[np.where(is_block, events["id"], 0)]
        names = np.where(is_block, np.array(CATEGORIES, object)[chosen], "unknown").tolist()
        for entry, name in zip(made, names, strict=True):
            entry["category"] = name
    return made


def _closing(seen: DeviceSnapshot) -> Entry:
    """Return the event that PyTorch also adds when a snapshot is taken."""
    times = seen.events["time_ns"]
    return {
        "action": "snapshot",
        "addr": 0,
        "size": seen.live_bytes,
        "stream": 0,
        "time_us": int(times[-1]) // _NS_PER_US if len(times) else 0,
        "frames": [],
        "category": "unknown",
        ADDED: True,
    }


def _unfinished(seen: DeviceSnapshot) -> frozenset[int]:
    """Return the rows of requested frees whose blocks are neither freed nor held at the end."""
    lives, events = seen.lives, seen.events
    rows = np.flatnonzero(events["kind"] == Kind.FREE_REQUESTED)
    ids = events["id"][rows]
    lives_on = lives.died[ids] == len(events)
    is_held = np.isin(lives.address[ids], seen.ranges["address"][seen.ranges["is_used"]])
    return frozenset(rows[lives_on & ~is_held].tolist())


def segment_actions(
    seen: DeviceSnapshot, unmapped: Iterable[tuple[int, int, int, int]]
) -> dict[int, list[tuple[str, int, int]]]:
    """Return the viewer's actions for each event of a segment: (action, address, bytes), by row.

    It goes back from the final segments, and fails if an event does not match the segments that it
    has by then. A base range that grew is one segment at the end, from which the viewer can remove
    a part only by "segment_map".
    unmapped: further memory that joins the segments on the way: (row, address, bytes, stream).
    """
    rows = np.flatnonzero(np.isin(seen.events["kind"], SEGMENT_KINDS))
    events = seen.events[rows]
    if not seen.counters:
        actions = _EXPANDABLE if seen.trace.is_expandable else _ACTIONS
        return {
            row: [(actions[Kind(kind)], address, size)]
            for row, (_, size, address, _, _, kind, _) in zip(
                rows.tolist(), events.tolist(), strict=True
            )
        }
    steps = [
        (row, kind, address, size, signed(stream))
        for row, (_, size, address, _, stream, kind, _) in zip(
            rows.tolist(), events.tolist(), strict=True
        )
    ]
    steps += [(row, -1, address, size, stream) for row, address, size, stream in unmapped]
    steps.sort(key=lambda step: step[0], reverse=True)
    found = _go_back(_Held(seen), steps, is_joined=False)
    is_plain = all(action in _PLAIN for parts in found.values() for action, _, _ in parts)
    return found if is_plain else _go_back(_Held(seen), steps, is_joined=True)


def _go_back(
    held: _Held, steps: Iterable[tuple[int, int, int, int, int]], *, is_joined: bool
) -> dict[int, list[tuple[str, int, int]]]:
    found = {}
    for row, kind, address, size, stream in steps:
        if kind == Kind.SEGMENT_ALLOC:
            found[row] = held.take(address, address + size)
            continue
        is_added = kind == -1
        parts = held.give(address, address + size, stream, is_joined=is_joined or is_added)
        if not is_added:
            found[row] = parts
    return found


class _Held:
    """The segments as the viewer has them while it goes back, merged where it merges them."""

    def __init__(self, seen: DeviceSnapshot) -> None:
        drawn = Drawn(seen)
        ends = seen.ranges["address"] + seen.ranges["size_bytes"]
        begin = seen.ranges["address"][drawn.first]
        order = np.argsort(begin, kind="stable")
        streams = seen.spans["stream"][drawn.span]
        end = ends[drawn.behind - 1][order].tolist()
        handles = map(signed, streams[order].tolist())
        self._spans = Spans(list(zip(begin[order].tolist(), end, handles, strict=True)))

    def take(self, begin: int, end: int) -> list[tuple[str, int, int]]:
        """Remove the present parts of a range; return the actions that add them."""
        actions = []
        for first, last, _ in self._spans.take(begin, end):
            low, high = max(first, begin), min(last, end)
            is_whole = (low, high) == (first, last)
            actions.append(("segment_alloc" if is_whole else "segment_map", low, high - low))
        return actions

    def give(
        self, begin: int, end: int, stream: int, *, is_joined: bool
    ) -> list[tuple[str, int, int]]:
        """Add the missing parts of a range; return the actions that remove them.

        is_joined: as a part of its neighbours, by "segment_unmap"; else on its own.
        """
        actions = []
        for low, high in self._gaps(begin, end):
            actions.append(("segment_unmap" if is_joined else "segment_free", low, high - low))
            first, last = low, high
            beside = (*self._spans.within(low - 1, low), *self._spans.within(high, high + 1))
            for near_first, near_last, near_stream in beside:
                if is_joined and near_stream == stream:
                    first, last = min(first, near_first), max(last, near_last)
            self._spans.put((first, last, stream))
        return actions

    def _gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        gaps = []
        for first, last, _ in self._spans.within(begin, end):
            if begin < first:
                gaps.append((begin, first))
            begin = last
        return [*gaps, (begin, end)] if begin < end else gaps


class _Additions:
    """Segment events missing from the recording, by the row that they precede or follow."""

    def __init__(self, seen: DeviceSnapshot) -> None:
        self.before: defaultdict[int, list[Entry]] = defaultdict(list)
        self.behind: defaultdict[int, list[Entry]] = defaultdict(list)
        self.unmapped: list[tuple[int, int, int, int]] = []
        """Memory that the final views took from base: (row, address, bytes, stream)."""
        self._seen = seen
        self._times = seen.events["time_ns"]
        is_of_pytorch = not seen.counters and np.isin(seen.events["kind"], SEGMENT_KINDS).any()
        if not len(seen.events) or is_of_pytorch:
            return
        lives = seen.lives
        ids = np.flatnonzero(lives.size_bytes > 0)
        views = seen.spans["kind"] == SpanKind.VIEW
        view_of = _spans_around(seen.spans, views, lives.address[ids])
        in_view = view_of >= 0
        drawn = Drawn(seen)
        taken = self._add_views(ids[in_view], view_of[in_view], set(drawn.span.tolist()))
        self._add_blocks(ids[~in_view], drawn, taken)

    def _add_views(
        self, ids: NDArray[np.int64], view_of: NDArray[np.int64], drawn: set[int]
    ) -> list[tuple[int, int, int]]:
        """Make each view a segment while it holds blocks.

        Returns (address, end, row) of memory that lay in the base range until that row.
        """
        lives, rows = self._seen.lives, len(self._seen.events)
        given: list[tuple[int, int, int]] = []
        by_view: defaultdict[int, list[Entry]] = defaultdict(list)
        for piece in self._seen.pieces.tolist():
            by_view[piece[3]].append({"addr": piece[1], "size": piece[2]})
        for view, begin, end in _periods(view_of, lives.born[ids], lives.died[ids], rows):
            span = self._seen.spans[view]
            what = {"addr": int(span["address"]), "size": int(span["size_bytes"])}
            stream = signed(int(span["stream"]))
            if end == rows and view not in drawn:
                continue
            if begin != BEFORE:
                if end == rows:
                    for piece in by_view[view]:
                        given.append((piece["addr"], piece["addr"] + piece["size"], begin))
                        base = self._base_stream(piece["addr"])
                        self._add(self.before, begin, "segment_unmap", piece, base)
                        self.unmapped.append((begin, piece["addr"], piece["size"], base))
                self._add(self.before, begin, "segment_alloc", what, stream)
            if end != rows:
                self._add(self.behind, end, "segment_free", what, stream)
        return given

    def _base_stream(self, address: int) -> int:
        spans = self._seen.spans
        around = _spans_around(
            spans, spans["kind"] == SpanKind.BASE, np.array([address], np.uint64)
        )
        return signed(int(spans["stream"][around[0]])) if around[0] >= 0 else 0

    def _add_blocks(
        self, ids: NDArray[np.int64], drawn: Drawn, given: list[tuple[int, int, int]]
    ) -> None:
        """Make each block outside the final segments a segment."""
        lives, rows = self._seen.lives, len(self._seen.events)
        lost = ids[~drawn.covers(lives.address[ids])]
        lost = lost[~self._was_held(lives.address[lost])]
        lost = lost[lives.died[lost] < rows]  # else held by nothing that is drawn: it was gone
        if given and len(lost):
            table = np.array(sorted(given), np.uint64)
            address = lives.address[lost]
            place = np.searchsorted(table[:, 0], address, side="right").astype(np.int64) - 1
            around = table[np.maximum(place, 0)]
            is_given = (place >= 0) & (address < around[:, 1])
            lost = lost[~(is_given & (lives.died[lost].astype(np.uint64) <= around[:, 2]))]
        columns = (lives.address, lives.born, lives.died, lives.size_bytes, lives.stream)
        for address, born, died, size, handle in zip(
            *(column[lost].tolist() for column in columns), strict=True
        ):
            what = {"addr": address, "size": size}
            stream = signed(handle)
            if born != BEFORE:
                self._add(self.before, born, "segment_alloc", what, stream)
            self._add(self.behind, died, "segment_free", what, stream)

    def _was_held(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which addresses lie in memory that was released to the driver."""
        events = self._seen.events
        gone = events[events["kind"] == Kind.SEGMENT_FREE]
        gone = gone[np.argsort(gone["address"], kind="stable")]
        # The furthest end so far: those that overlap count as one.
        end = np.maximum.accumulate(gone["address"] + gone["size_bytes"])
        return _inside(addresses, gone["address"], end)

    def _add(
        self,
        where: defaultdict[int, list[Entry]],
        row: int,
        action: str,
        what: Entry,
        stream: int,
    ) -> None:
        where[row].append(
            {
                "action": action,
                **what,
                "stream": stream,
                "time_us": int(self._times[row]) // _NS_PER_US,
                "frames": [],
                ADDED: True,
            }
        )


def _spans_around(
    spans: Records, chosen: NDArray[np.bool_], addresses: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the number of the chosen span around each address; -1 if there is none."""
    numbers = np.flatnonzero(chosen)
    if not len(numbers):
        return np.full(len(addresses), -1, np.int64)
    numbers = numbers[np.argsort(spans["address"][numbers], kind="stable")]
    begin = spans["address"][numbers]
    end = begin + spans["size_bytes"][numbers]
    place = np.searchsorted(begin, addresses, side="right").astype(np.int64) - 1
    found = (place >= 0) & (addresses < end[np.maximum(place, 0)])
    result: NDArray[np.int64] = np.where(found, numbers[np.maximum(place, 0)], -1)
    return result


def _periods(
    groups: NDArray[np.int64],
    born: NDArray[np.int64],
    died: NDArray[np.int64],
    rows: int,
) -> Iterator[tuple[int, int, int]]:
    """Yield (group, first row, last row) for each stretch in which a group has a live member.

    The last row is `rows` if the stretch lasts to the end.
    """
    ends = died < rows
    group = np.concatenate([groups, groups[ends]])
    row = np.concatenate([born, died[ends]])
    change = np.concatenate([np.ones(len(born), np.int64), np.full(int(ends.sum()), -1)])
    order = np.lexsort((-change, row, group))
    group, row, change = group[order], row[order], change[order]
    total = np.cumsum(change)
    is_first = np.diff(group, prepend=-1) != 0
    base = (total - change)[is_first]
    count = total - np.repeat(base, np.diff(np.append(np.flatnonzero(is_first), len(group))))
    begins = np.flatnonzero((change > 0) & (count == 1))
    stops = (change < 0) & (count == 0)
    stop_at = np.flatnonzero(stops)
    for at in begins.tolist():
        place = int(np.searchsorted(stop_at, at))
        has_end = place < len(stop_at) and group[stop_at[place]] == group[at]
        yield int(group[at]), int(row[at]), int(row[stop_at[place]]) if has_end else rows


def signed(stream: int) -> int:
    """Return a stream handle in the format's signed form."""
    return stream - 2 * _SIGN if stream >= _SIGN else stream


def highest_number(entries: Iterable[Entry]) -> int:
    """Return the largest address among segments or events."""
    return max((max(entry.get("addr", 0), entry.get("address", 0)) for entry in entries), default=0)
