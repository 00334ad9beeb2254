"""Snapshots as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gmlake.snapshots.figures_of import shares_of
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.tables import Tables, new_table
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from rich.table import Table

    from gmlake.snapshots.whole import Snapshot


def snapshot_tables(seen: Snapshot) -> Tables:
    """Yield a table for each device."""
    if not seen.devices:
        yield Text("PyTorch holds no memory")
    for one in seen.devices:
        yield _table(one)


def _table(seen: DeviceSnapshot) -> Table:
    table = new_table(Text(f"device {seen.device}"), "", "now", "peak")
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
    yield "fragmentation", format_share(seen.fragmentation), ""
    yield "blocks", f"{len(seen.blocks):,}", ""
    if count := len(seen.views):
        whole = format_size(int(seen.views["size_bytes"].sum()))
        yield "stitched views", f"{count:,}, {whole} in all", ""
    for name, size in shares_of(seen):
        yield name, size, ""
    yield "streams", f"{len(seen.streams):,}", ""
    if counters.get("deferred_free_bytes"):
        yield "freed, still in use", format_size(int(counters["deferred_free_bytes"])), ""
    for state, count in _nonzero(counters.get("states")):
        yield f"requests: {state}", f"{count:,}", ""
    calls = sum(count for _, count in _nonzero(counters.get("driver_calls")))
    if counters:
        yield "driver calls", f"{calls:,}", ""
    if len(seen.events):
        yield "events", f"{len(seen.events):,}", ""


def _nonzero(counts: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 (of a file, perhaps)
    for name, count in (counts if isinstance(counts, dict) else {}).items():
        if type(count) is int and count:
            yield str(name).replace("_", " "), count
