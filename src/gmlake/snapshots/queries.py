"""Answers about a recording: what is live at one moment, grouped.

The figures are those of the page: the same moments, states, owners, categories and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from rich.text import Text

from gmlake.pictures.figures import CATEGORIES, Moment
from gmlake.printable import printable
from gmlake.snapshots.asking import check_moment
from gmlake.snapshots.classes import distinct
from gmlake.snapshots.figures_of import block_rows, merged_blocks
from gmlake.snapshots.inferred import with_categories
from gmlake.snapshots.model import DeviceSnapshot, in_order
from gmlake.snapshots.moments import Playback, State, key_row
from gmlake.snapshots.peaks import BEFORE
from gmlake.snapshots.pool_names import OUTSIDE, pool_keys
from gmlake.snapshots.sites import OwnLines, Site
from gmlake.snapshots.whole import Snapshot, Source, load
from gmlake.tables import Printed, Tables, new_table
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import RenderableType

    Integers = NDArray[np.int64]

Key: TypeAlias = tuple[object, ...]
QUERY_SCHEMA: Final = "gmlake.query/1"


@dataclass(frozen=True)
class Row:
    """Blocks of one group. key: its name. id: what makes the group, for comparing two moments.

    more: of an owner, what the recording knows about its blocks; else what `key` says in words.
    """

    key: str
    size_bytes: int
    count: int
    id: Key
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """What is live on one device at one moment. rows: all groups, the largest first."""

    device: int
    row: int
    events: int
    moment: Moment
    state: State
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def count(self) -> int:
        """The number of live blocks."""
        return sum(row.count for row in self.rows)

    def at(self) -> dict[str, Any]:
        """Return the device, the moment and its figures, as JSON has them."""
        state = self.state
        return {
            "device": self.device,
            "moment": {
                "name": self.moment.name,
                "event": self.row,
                "events": self.events,
                "seconds": self.moment.seconds,
                "says": list(self.moment.says),
            },
            "live_bytes": state.live_bytes,
            "blocks": self.count,
            "held_bytes": state.held_bytes,
            "free_bytes": state.free_bytes,
            "largest_free_bytes": state.largest_bytes,
            "fragmentation": state.fragmentation,
            "refusal": state.situation.to_dict() if state.situation else None,
            "note": self.note,
        }

    def when(self) -> str:
        """Return the device and the moment in words."""
        said = f"device {self.device} {self.moment.name}"
        if self.row >= 0 and f"event {self.row:,}" not in said:
            said += f", event {self.row:,} of {self.events:,}"
        return said


@dataclass(frozen=True)
class QueryReport(Printed):
    """What is live on each device. answers: that of the first refusal first, or else the fullest.

    by: one of GROUPS. top: how many rows are shown of each.
    """

    name: str
    at: str
    by: str
    answers: tuple[Held, ...]
    top: int = 10

    def to_dict(self) -> dict[str, Any]:
        """Return what `gmlake query --json` prints."""
        return {
            "schema": QUERY_SCHEMA,
            "file": self.name,
            "at": self.at or None,
            "by": self.by,
            "answers": [self._answer(one) for one in self.answers],
        }

    def _answer(self, held: Held) -> dict[str, Any]:
        shown, others = held.rows[: self.top], held.rows[self.top :]
        return {
            **held.at(),
            "rows": [
                {
                    "key": row.key,
                    "bytes": row.size_bytes,
                    "blocks": row.count,
                    "share": self._share(held, row.size_bytes),
                    **row.more,
                }
                for row in shown
            ],
            "others": summed(others),
        }

    def _share(self, held: Held, size_bytes: int) -> float:
        """Return the part of all: of the device, or, by device, of all of them."""
        of = (held,) if self.by != "device" else self.answers
        total = sum(one.state.live_bytes for one in of)
        return size_bytes / total if total else 0.0

    def _tables(self) -> Tables:
        if self.by == "device":
            yield Text(printable(self.name), "bold")
            yield self._devices()
            return
        for held in self.answers:
            yield Text(printable(f"{self.name}, {held.when()}"), "bold")
            yield from (Text(printable(said)) for said in _headline(held))
            if held.rows:
                yield self._table(held)
            if held.note:
                yield Text(held.note, "dim")

    def _table(self, held: Held) -> RenderableType:
        table = new_table(None)
        for name in ("size", "share", "blocks"):
            table.add_column(name, justify="right", no_wrap=True)
        if self.by == "owner":
            table.add_column("each", justify="right", no_wrap=True)
            table.add_column("category", no_wrap=True)
        table.add_column("asked for at" if self.by == "owner" else self.by, overflow="fold")
        for row in held.rows[: self.top]:
            more = []
            if self.by == "owner":
                more = [format_size(row.more["one_bytes"]), row.more["category"]]
            table.add_row(*self._cells(held, row.size_bytes, row.count), *more, printable(row.key))
        others = summed(held.rows[self.top :])
        if others["rows"]:
            cells = self._cells(held, others["bytes"], others["blocks"])
            more = ["", ""] if self.by == "owner" else []
            table.add_row(*cells, *more, f"{others['rows']:,} more", style="dim")
        return table

    def _cells(self, held: Held, size_bytes: int, count: int) -> tuple[str, str, str]:
        share = format_share(self._share(held, size_bytes))
        return format_size(size_bytes), share, f"{count:,}"

    def _devices(self) -> RenderableType:
        names = ("live", "share", "blocks", "held", "free", "largest\nfree")
        table = new_table(None, "device", *names)
        table.add_column("moment", overflow="fold")
        for held in self.answers[: self.top]:
            state = held.state
            sizes = (state.held_bytes, state.free_bytes, state.largest_bytes)
            table.add_row(
                f"{held.device}",
                *self._cells(held, state.live_bytes, held.count),
                *("" if size is None else format_size(size) for size in sizes),
                printable(held.when().removeprefix(f"device {held.device} ")),
            )
        return table


def _headline(held: Held) -> tuple[str, ...]:
    """Return the sentences about a moment: what happened, and of a refusal also why."""
    return held.moment.says[: 2 if held.state.situation else 1]


def summed(rows: tuple[Row, ...]) -> dict[str, int]:
    """Return how many rows these are, with the sums of their bytes and blocks."""
    return {
        "rows": len(rows),
        "bytes": sum(row.size_bytes for row in rows),
        "blocks": sum(row.count for row in rows),
    }


# ---- moments


def row_of(seen: DeviceSnapshot, at: str) -> int:
    """Return the event after which a moment is, BEFORE for the start. Raises ValueError.

    at: a moment as check_moment() takes it; "": the one that the page shows first.
    """
    count = len(seen.events)
    if at == "refusal" and not len(seen.refusals):
        raise ValueError(
            f"nothing was refused on device {seen.device}; --at peak is its fullest moment"
        )
    if at in ("", "refusal"):
        return key_row(seen)
    if at == "peak":
        return seen.peak.row
    if at == "start":
        return BEFORE
    if at == "end":
        return count - 1
    row = int(check_moment(at))
    if row >= count:
        known = f"its events are 0 to {count - 1:,}" if count else "it has no events"
        raise ValueError(f"device {seen.device} has no event {row:,}; {known}")
    return row


def chosen_devices(seen: Snapshot, at: str, device: int | None) -> list[DeviceSnapshot]:
    """Return the devices that an answer is about. Raises ValueError if there is none."""
    known = ", ".join(str(one.device) for one in seen.devices) or "none"
    found = [one for one in in_order(seen.devices) if device in (None, one.device)]
    if not found:
        raise ValueError(f"it holds no events of device {device}; its devices: {known}")
    if at.isdigit() and len(found) > 1:
        raise ValueError(f"each device has events of its own; choose one with --device: {known}")
    if at == "refusal" and device is None:
        refused = [one for one in found if len(one.refusals)]
        if not refused:
            raise ValueError(
                "nothing was refused in this recording; --at peak is its fullest moment"
            )
        return refused
    return found


# ---- groups


def held_at(
    seen: DeviceSnapshot, at: str, by: str, lines: OwnLines, sites: dict[int, Site]
) -> Held:
    """Return what is live on a device at a moment, grouped. Raises ValueError for the moment."""
    row = row_of(seen, at)
    note = ""
    if by in ("category", "owner"):
        seen, note = with_categories(seen, lines)
    playback = Playback(seen, lines, rows=np.array([row]))
    (moment,) = playback.describe("", 0).moments
    if by in ("line", "owner"):
        note = "; ".join(filter(None, (note, playback.owners.without_line(playback.shown_ids))))
    found = _GROUPED[by](playback, sites)
    rows = tuple(sorted(found, key=lambda one: -one.size_bytes))
    state = playback.state_at(0)
    return Held(seen.device, row, len(seen.events), moment, state, rows, note)


def _by_number(
    playback: Playback, numbers: NDArray[Any], name: Callable[[int], tuple[str, dict[str, Any]]]
) -> Iterator[Row]:
    """Yield a group for each number. numbers: of all blocks, at least 0."""
    ids = playback.shown_ids
    values, which = distinct(numbers[ids])
    sizes = np.zeros(len(values), np.int64)
    np.add.at(sizes, which, playback.seen.lives.size_bytes[ids])
    counts = np.bincount(which, minlength=len(values))
    for number, size, count in zip(values.tolist(), sizes.tolist(), counts.tolist(), strict=True):
        key, more = name(number)
        yield Row(key, size, count, (key,), more)


def _by_line(playback: Playback, _sites: dict[int, Site]) -> Iterator[Row]:
    owners = playback.owners
    return _by_number(playback, owners.of_id, lambda number: (owners.name(number), {}))


def _by_category(playback: Playback, _sites: dict[int, Site]) -> Iterator[Row]:
    return _by_number(playback, playback.seen.categories, lambda number: (CATEGORIES[number], {}))


def _by_stream(playback: Playback, _sites: dict[int, Site]) -> Iterator[Row]:
    def name(number: int) -> tuple[str, dict[str, Any]]:
        return f"stream {number}", {"stream": number}

    return _by_number(playback, playback.seen.lives.stream, name)


def _by_pool(playback: Playback, _sites: dict[int, Site]) -> Iterator[Row]:
    def name(number: int) -> tuple[str, dict[str, Any]]:
        return playback.pool_name(number) or OUTSIDE, pool_keys(playback.pool(number))

    for row in _by_number(playback, playback.block_pools, name):
        yield replace(row, id=tuple(row.more["pool"] or ()))


def _by_device(playback: Playback, _sites: dict[int, Site]) -> Iterator[Row]:
    ids, device = playback.shown_ids, playback.seen.device
    size_bytes = int(playback.seen.lives.size_bytes[ids].sum())
    yield Row(f"device {device}", size_bytes, len(ids), ("device",))


def _by_owner(playback: Playback, sites: dict[int, Site]) -> Iterator[Row]:
    """Yield blocks of one place, size, category, stream and pool, as the page's table has them."""
    seen, ids = playback.seen, playback.shown_ids
    _, one, count = merged_blocks(playback, ids)
    places = ids[one].tolist()
    rows = block_rows(playback, places, count.tolist(), [()] * len(places))
    for place, row in zip(places, rows, strict=True):
        at = int(seen.lives.site[place])
        site = sites.get(at, Site())
        pool = pool_keys(playback.pool(int(playback.block_pools[place])))
        more = {
            "line": playback.lines.line(at),
            "scope": site.scope,
            "frames": list(row.frames),
            "category": row.category,
            "stream": row.stream,
            **pool,
            "one_bytes": row.one_bytes,
            "address": row.address,
        }
        name = playback.lines.name(at) or playback.owners.name(int(playback.owners.of_id[place]))
        identity = name, row.one_bytes, row.category, row.stream, tuple(pool["pool"] or ())
        yield Row(row.site or "not known", row.size_bytes, row.count, identity, more)


_GROUPED: Final = {
    "line": _by_line,
    "category": _by_category,
    "stream": _by_stream,
    "pool": _by_pool,
    "owner": _by_owner,
    "device": _by_device,
}


def query(
    recording: Source, at: str = "", by: str = "line", device: int | None = None, top: int = 10
) -> QueryReport:
    """Return what is live at one moment, grouped.

    recording: as gmlake.load() takes it. at: "peak", "refusal" (the last one), "start", "end" or
    the number of an event; "": the last refusal, or else the peak. by: "line", "category",
    "stream", "pool", "owner" or "device". device: only this one. top: rows to show.

    Raises TraceError for an unreadable file, ValueError for a moment or device that is not there.
    """
    seen = load(recording)
    lines = OwnLines(seen.sites)
    chosen = chosen_devices(seen, at, device)
    answers = tuple(held_at(one, at, by, lines, seen.sites) for one in chosen)
    return QueryReport(seen.name, at, by, answers, top)
