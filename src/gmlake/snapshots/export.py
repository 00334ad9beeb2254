"""Snapshots for other readers: tables for a terminal, a trace for ui.perfetto.dev."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.figures_of import reserved_behind, shares_of
from gmlake.snapshots.moments import seconds_of
from gmlake.tables import new_table
from gmlake.trace.layout import Kind
from gmlake.units import format_share, format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from gmlake.snapshots.model import DeviceSnapshot
    from gmlake.snapshots.whole import Snapshot

    Entry = dict[str, Any]

MOST_SLICES: Final = 100_000
"""Blocks drawn per device, the largest; a trace says how many it left out."""

_US: Final = 1e6


def snapshot_tables(seen: Snapshot) -> Iterator[RenderableType]:
    """Yield a table for each device."""
    from rich.text import Text

    if not seen.devices:
        yield Text("gmlake holds no memory")
    for one in seen.devices:
        yield _table(one)


def _table(seen: DeviceSnapshot) -> Table:
    from rich.text import Text

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
        yield "events kept", f"{len(seen.events):,} of {seen.total_events:,}", ""


def _nonzero(counts: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 (of a file, perhaps)
    for name, count in (counts if isinstance(counts, dict) else {}).items():
        if type(count) is int and count:
            yield str(name).replace("_", " "), count


# ---- Perfetto


def save_perfetto(snapshot: Snapshot, path: str | Path, smallest: int | str = "1MiB") -> None:
    """Write the trace. Raises OSError, ValueError if `smallest` is not a size."""
    smallest_bytes = parse_size(smallest)
    left_out = 0
    entries: list[Entry] = []
    for one in snapshot.devices:
        chosen = _chosen(one, smallest_bytes)
        left_out += int((one.lives.size_bytes > 0).sum()) - len(chosen)
        entries += _device(one, snapshot, chosen)
    document = {
        "traceEvents": entries,
        "displayTimeUnit": "ms",
        "otherData": {"blocks left out as too small or too many": str(left_out)},
    }
    Path(path).write_text(json.dumps(document, separators=(",", ":")), encoding="ascii")


def _chosen(seen: DeviceSnapshot, smallest_bytes: int) -> list[int]:
    sizes = seen.lives.size_bytes
    large = np.flatnonzero(sizes >= max(smallest_bytes, 1))
    if len(large) > MOST_SLICES:
        large = large[np.argsort(-sizes[large], kind="stable")[:MOST_SLICES]]
    found: list[int] = large.tolist()
    return found


def _device(seen: DeviceSnapshot, snapshot: Snapshot, chosen: list[int]) -> Iterator[Entry]:
    process = seen.device
    name = {"name": f"device {seen.device}"}
    yield {"ph": "M", "pid": process, "name": "process_name", "args": name}
    seconds = seconds_of(seen)
    times = (np.arange(len(seen.events)) if seconds is None else seconds * _US).tolist()
    reserved = reserved_behind(seen)
    changes = np.flatnonzero(seen.lives.change != 0)
    for row in changes.tolist():
        args = {"live": int(seen.lives.live_bytes[row])}
        if reserved is not None:
            args["reserved"] = int(reserved[row])
        yield {"ph": "C", "pid": process, "name": "bytes", "ts": times[row], "args": args}
    yield from _slices(seen, snapshot, chosen, times)
    kinds, sizes = seen.events["kind"], seen.events["size_bytes"]
    for row in np.flatnonzero(np.isin(kinds, (Kind.MARK, Kind.OOM))).tolist():
        is_mark = kinds[row] == Kind.MARK
        label = seen.trace.label(int(seen.events["id"][row])) if is_mark else "out of memory"
        if kinds[row] == Kind.OOM:
            label += f": {format_size(int(sizes[row]))} refused"
        yield {"ph": "i", "s": "p", "pid": process, "name": label, "ts": times[row]}


def _slices(
    seen: DeviceSnapshot, snapshot: Snapshot, chosen: list[int], times: list[float]
) -> Iterator[Entry]:
    """Yield the begin and the end of each block; blocks never freed end with the recording."""
    lives = seen.lives
    last = times[-1] if times else 0.0
    for number in chosen:
        born, died = int(lives.born[number]), int(lives.died[number])
        site = snapshot.sites.get(int(lives.site[number]))
        what = {
            "name": format_size(int(lives.requested_bytes[number])),
            "cat": CATEGORIES[int(seen.categories[number])],
            "id": str(number),
            "pid": seen.device,
            "tid": int(lives.stream[number]) % (1 << 31),
        }
        args = {
            "address": f"{int(lives.address[number]):#x}",
            "stream": int(lives.stream[number]),
            "site": str(site) if site else "",
            "frames": "\n".join(site.frames) if site else "",
        }
        yield {"ph": "b", **what, "ts": times[max(born, 0)] if times else 0.0, "args": args}
        yield {"ph": "e", **what, "ts": times[died] if died < len(times) else last}
