"""A snapshot as a table: for a terminal, for str(), and for a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gmlake.snapshots.capture import snapshot
from gmlake.tables import as_text, new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

    from gmlake.snapshots.model import DeviceSnapshot
    from gmlake.snapshots.whole import Snapshot


@dataclass(frozen=True)
class MemorySummary:
    """The table that memory_summary() returns; print() shows it."""

    seen: Snapshot

    def __str__(self) -> str:
        """Render it as plain text."""
        return as_text(self)

    def __repr__(self) -> str:
        """Show the table, too, where a shell shows results."""
        return str(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it."""
        yield from snapshot_tables(self.seen)


def memory_summary(device: int | None = None) -> MemorySummary:
    """Return a table of what gmlake holds for PyTorch, on all devices or on one; print() shows it.

    Raises ValueError for a device on which gmlake holds nothing.
    """
    return MemorySummary(snapshot(device))


def snapshot_tables(seen: Snapshot) -> Iterator[RenderableType]:
    """Yield a table for each device."""
    if not seen.devices:
        yield Text("gmlake holds no memory")
    for one in seen.devices:
        yield _table(one)


def _table(seen: DeviceSnapshot) -> Table:
    table = new_table(Text(f"device {seen.device}"))
    table.add_column("", no_wrap=True)
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    for name, current, peak in _rows(seen):
        table.add_row(name, current, peak)
    return table


def _rows(seen: DeviceSnapshot) -> Iterator[tuple[str, str, str]]:
    counters = seen.counters

    def peak(name: str) -> str:
        value = counters.get(f"peak_{name}")
        return "" if value is None else format_size(int(value))

    live_peak = peak("live_bytes") or (
        format_size(seen.peak.live_bytes) if len(seen.events) else ""
    )
    yield "live", format_size(seen.live_bytes), live_peak
    yield "reserved", format_size(seen.reserved_bytes), peak("reserved_bytes")
    yield "free", format_size(seen.free_bytes), ""
    yield "largest obtainable", format_size(seen.largest_free_bytes), ""
    yield "fragmentation", f"{seen.fragmentation:.1%}", ""
    yield "blocks", f"{len(seen.blocks):,}", ""
    views = f"{len(seen.views):,} of {format_size(int(seen.views['size_bytes'].sum()))}"
    yield "stitched views", views, ""
    if len(seen.planned_pools):
        yield "planned pools", format_size(int(seen.planned_pools["size_bytes"].sum())), ""
    yield "streams", f"{len(seen.streams):,}", ""
    if counters.get("deferred_free_bytes"):
        yield "freed, still in use", format_size(int(counters["deferred_free_bytes"])), ""
    for state, count in _nonzero(counters.get("states")):
        yield f"requests: {state}", f"{count:,}", ""
    calls = sum(count for _, count in _nonzero(counters.get("driver_calls")))
    if counters:
        yield "driver calls", f"{calls:,}", ""
    if len(seen.events):
        yield "events kept", f"{len(seen.events):,} of {seen.total_events:,}", ""


def _nonzero(counts: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 (of a file, perhaps)
    for name, count in (counts if isinstance(counts, dict) else {}).items():
        if type(count) is int and count:
            yield str(name).replace("_", " "), count


def as_html(seen: Snapshot) -> str:
    """Draw the report of a snapshot as a frame for a notebook."""
    from gmlake.pictures import in_notebook

    return in_notebook(seen.report())
