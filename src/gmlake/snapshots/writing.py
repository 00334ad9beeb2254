"""Writes PyTorch's snapshot format.

The memory of a view that holds blocks is a segment at the view's address, and not a second time
where it lies, so that every byte is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.model import UNKNOWN, DeviceSnapshot
from gmlake.snapshots.pools import NO_POOL
from gmlake.snapshots.sites import Site
from gmlake.trace.layout import Kind, SpanKind

if TYPE_CHECKING:
    Entry = dict[str, Any]

_ACTIONS: Final = {
    Kind.ALLOC: "alloc",
    Kind.FREE: "free_completed",
    Kind.FREE_REQUESTED: "free_requested",
    Kind.SEGMENT_ALLOC: "segment_alloc",
    Kind.SEGMENT_FREE: "segment_free",
    Kind.OOM: "oom",
}
_EXPANDABLE: Final = {
    **_ACTIONS,
    Kind.SEGMENT_ALLOC: "segment_map",
    Kind.SEGMENT_FREE: "segment_unmap",
}
_NS_PER_US: Final = 1000
_SIGN: Final = 1 << 63


class Frames:
    """Call paths in the format's form; the same list for the same site."""

    def __init__(self, sites: Mapping[int, Site]) -> None:
        self._sites = sites
        self._made: dict[int, list[Entry]] = {0: []}

    def of(self, number: int) -> list[Entry]:
        """Return the frames of a site, innermost first."""
        made = self._made.get(number)
        if made is None:
            site = self._sites.get(number, Site())
            made = self._made[number] = [_frame(text) for text in site.frames]
        return made

    def scope(self, number: int) -> str:
        """Return what the program said of a site."""
        site = self._sites.get(number)
        return site.scope if site else ""


def _frame(text: str) -> Entry:
    name, _, place = text.partition("  ")
    file, _, line = place.rpartition(":")
    if not line.isdecimal() or len(line) > 9:  # noqa: PLR2004 (digits that surely fit)
        return {"name": name, "filename": place, "line": 0}
    return {"name": name, "filename": file, "line": int(line)}


# ---- segments


def segments_of(seen: DeviceSnapshot, frames: Frames) -> list[Entry]:
    """Return the segments in address order: contiguous runs of ranges, each in one span."""
    lives = seen.lives
    waiting = set(lives.address[lives.let_go & (lives.died == len(seen.events))].tolist())
    ranges, kinds = seen.ranges, seen.spans["kind"]
    is_lent = ranges["is_used"] & (ranges["requested_bytes"] == 0)
    is_live = np.zeros(len(kinds), np.bool_)
    is_live[ranges["span"][ranges["is_used"]]] = True
    is_drawn = is_live | (kinds != SpanKind.VIEW)
    rows = np.flatnonzero(is_drawn[ranges["span"]] & ~is_lent & (ranges["size_bytes"] > 0))
    follows = (np.diff(rows) == 1) & (np.diff(ranges["span"][rows].astype(np.int64)) == 0)
    segments = []
    for run in np.split(rows, np.flatnonzero(~follows) + 1) if len(rows) else ():
        span = seen.spans[ranges["span"][run[0]]]
        blocks = [_block(row, waiting, frames) for row in ranges[run].tolist()]
        segments.append(_segment(seen, span.item(), blocks))
    return sorted(segments, key=lambda segment: segment["address"])


def _segment(seen: DeviceSnapshot, span: tuple[Any, ...], blocks: list[Entry]) -> Entry:
    _, _, stream, owner, number, kind, is_small = span
    used = [block for block in blocks if block["state"] != "inactive"]
    live_bytes = sum(block["size"] for block in used)
    is_ours = kind != SpanKind.SEGMENT
    return {
        "device": seen.device,
        "address": blocks[0]["address"],
        "total_size": sum(block["size"] for block in blocks),
        "allocated_size": live_bytes,
        "active_size": live_bytes,
        "requested_size": sum(block["requested_size"] for block in used),
        "stream": signed(stream),
        "segment_type": "small" if is_small else "large",
        "segment_pool_id": (owner, number),
        "is_expandable": is_ours or seen.trace.is_expandable,
        "frames": [],
        "blocks": blocks,
    }


def _block(row: tuple[Any, ...], waiting: set[int], frames: Frames) -> Entry:
    address, size, requested, site, _, _, is_used = row
    state = "inactive"
    if is_used:
        state = "active_pending_free" if address in waiting else "active_allocated"
    entry: Entry = {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": frames.of(site),
    }
    if scope := frames.scope(site):
        entry["user_metadata"] = scope
    return entry


# ---- events


def events_of(seen: DeviceSnapshot, frames: Frames) -> list[Entry]:
    """Return the events; marks are written as annotations, and TRIM has no counterpart."""
    actions = _EXPANDABLE if seen.trace.is_expandable else _ACTIONS
    pools = [NO_POOL, *seen.trace.pools]
    rows = zip(
        seen.events.tolist(),
        seen.event_sites.tolist(),
        seen.trace.event_pools.tolist(),
        strict=True,
    )
    entries = []
    for (_, size, address, time, stream, kind, _), site, pool in rows:
        action = actions.get(kind)
        if action is None:
            continue
        entry: Entry = {
            "action": action,
            "device_free" if kind == Kind.OOM else "addr": address,
            "size": size,
            "stream": signed(stream),
            "time_us": time // _NS_PER_US,
            "frames": frames.of(site),
        }
        if len(pools) > 1:
            entry["pool_id"] = pools[pool]
        if scope := frames.scope(site):
            entry["user_metadata"] = scope
        entries.append(entry)
    return [*entries, *_told(seen)]


def _told(seen: DeviceSnapshot) -> Iterator[Entry]:
    """Name the categories of live blocks that the program told, as PyTorch 2.14 does."""
    if seen.told_categories is None:
        return
    lives, told = seen.lives, seen.told_categories
    is_live = (lives.died == len(seen.events)) & (told != UNKNOWN)
    for number in np.flatnonzero(is_live).tolist():
        yield {
            "action": "annotate",
            "addr": int(lives.address[number]),
            "size": int(lives.requested_bytes[number]),
            "stream": signed(int(lives.stream[number])),
            "time_us": int(seen.events["time_ns"].max(initial=0)) // _NS_PER_US,
            "frames": [],
            "user_metadata": CATEGORIES[int(told[number])],
        }


def annotations_of(seen: DeviceSnapshot) -> list[Entry]:
    """Return the marks as ends of annotations."""
    return [
        {"stage": "END", "name": label, "device": seen.device, "time_us": time // _NS_PER_US}
        for time, label in seen.marks
    ]


def signed(stream: int) -> int:
    """Return a stream handle in the format's signed form."""
    return stream - 2 * _SIGN if stream >= _SIGN else stream


def highest_address(entries: list[Entry]) -> int:
    """Return the highest address among segments or events."""
    return max((max(entry.get("addr", 0), entry.get("address", 0)) for entry in entries), default=0)
