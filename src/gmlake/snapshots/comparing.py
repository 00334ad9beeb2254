"""Two moments of memory, side by side: what grew, what shrank, what came and went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.text import Text

from gmlake.printable import printable
from gmlake.snapshots.classes import split_lines
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.queries import Held, Key, Row, chosen_devices, held_at, row_of
from gmlake.snapshots.sites import OwnLines, Site, told_apart
from gmlake.snapshots.whole import Snapshot, Source, load
from gmlake.tables import Printed, Tables, new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import RenderableType

COMPARE_SCHEMA: Final = "gmlake.compare/1"


@dataclass(frozen=True)
class Change:
    """A group at two moments. before, after: None if it is not there."""

    key: str
    before: Row | None
    after: Row | None

    @property
    def change_bytes(self) -> int:
        """By how much it grew; below 0 if it shrank."""
        return _size(self.after) - _size(self.before)

    @property
    def what(self) -> str:
        """Whether it is "new", "gone", "grew", "shrank", or the "same" size."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        change = self.change_bytes
        return "grew" if change > 0 else "shrank" if change < 0 else "same"

    def to_dict(self) -> dict[str, Any]:
        """Return a row of the JSON."""
        shown = self.after or self.before
        return {
            "key": self.key,
            "what": self.what,
            "change_bytes": self.change_bytes,
            "before_bytes": _size(self.before),
            "after_bytes": _size(self.after),
            "before_blocks": self.before.count if self.before else 0,
            "after_blocks": self.after.count if self.after else 0,
            **(shown.more if shown else {}),
        }


def _size(row: Row | None) -> int:
    return row.size_bytes if row else 0


@dataclass(frozen=True)
class Comparison:
    """Two moments. changes: every group of either, by growth, that which shrank most last."""

    before: Held
    after: Held
    changes: tuple[Change, ...]

    def shown(self, top: int) -> list[Change]:
        """Return those that changed most, still by growth."""
        most = sorted(self.changes, key=lambda one: -abs(one.change_bytes))[:top]
        kept = {id(one) for one in most}
        return [one for one in self.changes if id(one) in kept]


@dataclass(frozen=True)
class CompareReport(Printed):
    """What grew between two recordings, or two moments of one; one comparison for each device."""

    names: tuple[str, str]
    at: tuple[str, str]
    by: str
    comparisons: tuple[Comparison, ...]
    top: int = 10

    def to_dict(self) -> dict[str, Any]:
        """Return what `gmlake compare --json` prints."""
        return {
            "schema": COMPARE_SCHEMA,
            "before": {"file": self.names[0], "at": self.at[0] or None},
            "after": {"file": self.names[1], "at": self.at[1] or None},
            "by": self.by,
            "comparisons": [self._comparison(one) for one in self.comparisons],
        }

    def _comparison(self, one: Comparison) -> dict[str, Any]:
        shown = one.shown(self.top)
        change = one.after.state.live_bytes - one.before.state.live_bytes
        return {
            "before": one.before.at(),
            "after": one.after.at(),
            "change_bytes": change,
            "rows": [row.to_dict() for row in shown],
            "others": {
                "rows": len(one.changes) - len(shown),
                "change_bytes": change - sum(row.change_bytes for row in shown),
            },
        }

    def _tables(self) -> Tables:
        for one in self.comparisons:
            sides = zip(self.names, (one.before, one.after), strict=True)
            said = " -> ".join(
                f"{name}, {held.when()}: {format_size(held.state.live_bytes)}"
                for name, held in sides
            )
            yield Text(printable(said), "bold")
            if one.changes:
                yield self._table(one)
            for note in dict.fromkeys(filter(None, (one.before.note, one.after.note))):
                yield Text(note, "dim")

    def _table(self, one: Comparison) -> RenderableType:
        table = new_table(None)
        for name in ("change", "before", "after", "blocks"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("asked for at" if self.by == "owner" else self.by, overflow="fold")
        shown = one.shown(self.top)
        for row in shown:
            counts = [f"{side.count:,}" if side else "0" for side in (row.before, row.after)]
            table.add_row(
                _signed(row.change_bytes),
                format_size(_size(row.before)),
                format_size(_size(row.after)),
                " -> ".join(counts) if counts[0] != counts[1] else counts[0],
                row.what,
                printable(row.key),
            )
        left = len(one.changes) - len(shown)
        if left:
            change = one.after.state.live_bytes - one.before.state.live_bytes
            rest = change - sum(row.change_bytes for row in shown)
            table.add_row(_signed(rest), "", "", "", "", f"{left:,} more", style="dim")
        return table


def _signed(size_bytes: int) -> str:
    return f"+{format_size(size_bytes)}" if size_bytes > 0 else format_size(size_bytes)


def compare(  # noqa: PLR0913 (two moments, and how to look at them)
    before: Source,
    after: Source,
    at: tuple[str, str] = ("", ""),
    *,
    by: str = "line",
    device: int | None = None,
    top: int = 10,
) -> CompareReport:
    """Return what grew, shrank, came and went between two moments, by groups.

    before, after: as gmlake.load() takes them, and may be the same. at, by, device, top: as in
    gmlake.query(), one moment of each.

    Raises TraceError for an unreadable file, ValueError for a moment or device that one of them
    does not have.
    """
    sites: dict[int, Site] = {}
    names = load(before).name, load(after).name
    both = [_renumbered(load(seen), sites) for seen in (before, after)]
    lines = OwnLines(sites)
    chosen = []
    for seen, moment in zip(both, at, strict=True):
        with _blaming(seen.name):
            chosen.append(chosen_devices(seen, moment, device))
    comparisons = []
    for pair in _pairs(chosen[0], chosen[1]):
        named = list(zip(names, pair, at, strict=True))
        for name, one, moment in named:  # a line that one side splits is split on both
            with _blaming(name):
                split_lines(one, lines, (row_of(one, moment), one.peak.row))
        sides = [held_at(one, moment, by, lines, sites) for _, one, moment in named]
        comparisons.append(Comparison(sides[0], sides[1], changes(sides[0].rows, sides[1].rows)))
    return CompareReport(names, at, by, tuple(comparisons), top)


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Say which recording a moment or device is not in."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _pairs(
    before: list[DeviceSnapshot], after: list[DeviceSnapshot]
) -> list[tuple[DeviceSnapshot, DeviceSnapshot]]:
    """Return the devices that both have; two recordings of one device each are always a pair."""
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    others = {one.device: one for one in after}
    found = [(one, others[one.device]) for one in before if one.device in others]
    if not found:
        told = [", ".join(str(one.device) for one in side) for side in (before, after)]
        raise ValueError(f"the recordings have no device in common: {told[0]} and {told[1]}")
    return found


def _renumbered(seen: Snapshot, sites: dict[int, Site]) -> Snapshot:
    """Return a snapshot with sites of numbers of its own, which are added to `sites`."""
    known = np.array(sorted(seen.sites), np.uint64)
    first = len(sites) + 1
    sites |= {first + place: seen.sites[int(number)] for place, number in enumerate(known)}

    def moved(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        if not len(known):
            return np.zeros_like(numbers)
        place = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        is_known = known[place] == numbers
        found: NDArray[np.uint64] = np.where(is_known, place + first, 0).astype(np.uint64)
        return found

    devices = tuple(
        replace(one, event_sites=moved(one.event_sites), start_sites=moved(one.start_sites))
        for one in seen.devices
    )
    return replace(seen, devices=devices)


def changes(before: tuple[Row, ...], after: tuple[Row, ...]) -> tuple[Change, ...]:
    """Return how the groups of two moments differ, by growth; a group is known by its id."""
    first, second = _by_id(before), _by_id(after)
    found = []
    for key in dict.fromkeys([*first, *second]):
        old, new = first.get(key), second.get(key)
        shown = new or old
        is_owner = shown is not None and "one_bytes" in shown.more  # which its id names, too
        name = str(key[0]) if is_owner else shown.key if shown else ""
        found.append(Change(name, old, new))
    found = [replace(one, key=name) for one, name in zip(found, _told_apart(found), strict=True)]
    return tuple(sorted(found, key=lambda one: (-one.change_bytes, -_size(one.after), one.key)))


def _told_apart(changes: list[Change]) -> list[str]:
    """Return the names of changes, no two alike; what tells rows of owners apart has no column."""

    def details(alike: Sequence[int]) -> Iterator[Sequence[str]]:
        rows = [changes[number].after or changes[number].before for number in alike]
        more = [row.more if row else {} for row in rows]
        yield [f"{format_size(one.get('one_bytes', 0))} each" for one in more]
        yield [str(one.get("category")) for one in more]
        yield [f"stream {one.get('stream')}" for one in more]
        yield [f"pool {one['pool']}" if one.get("pool") else "" for one in more]
        yield [f"{one.get('one_bytes', 0):,} B each" for one in more]

    return told_apart([one.key for one in changes], [()] * len(changes), details)


def _by_id(rows: tuple[Row, ...]) -> dict[Key, Row]:
    """Return rows by what makes their group; those that differ only in address space are added."""
    found: dict[Key, Row] = {}
    for row in rows:
        old = found.get(row.id)
        if old is not None:
            sizes = old.size_bytes + row.size_bytes, old.count + row.count
            found[row.id] = replace(old, size_bytes=sizes[0], count=sizes[1])
        else:
            found[row.id] = row
    return found
