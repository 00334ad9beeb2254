"""Snapshots in files: PyTorch's format, with gmlake's further data beside it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import Error, TraceError
from gmlake.snapshots import beside, writing
from gmlake.snapshots.annotations import apply_annotations
from gmlake.snapshots.entries import Events, Visits, values_of_rows
from gmlake.snapshots.model import DeviceSnapshot, name_ranges
from gmlake.snapshots.opening import load_document, without_collection
from gmlake.snapshots.reading import read_snapshot
from gmlake.snapshots.sites import Places, Site
from gmlake.snapshots.traces import of_trace, with_addresses
from gmlake.trace.layout import Kind
from gmlake.trace.trace import OTHER_BYTES, Trace

if TYPE_CHECKING:
    from gmlake.snapshots.whole import Snapshot

    Parts = tuple[tuple[DeviceSnapshot, ...], dict[int, Site], dict[str, Any]]

PROTOCOL: Final = 4
"""The viewer's own unpickler knows no later one."""

_ADDRESS_LIMIT: Final = 1 << 53  # the viewer's numbers are doubles


# ---- writing


def save(snapshot: Snapshot, path: str | Path) -> None:
    """Write JSON, gmlake's compact format or a pickle, by the name. Raises OSError, Error."""
    where = Path(path)
    if where.suffix == ".gmtrace":
        if len(snapshot.devices) != 1:
            raise Error("a .gmtrace file holds one device; choose one by of_device()")
        snapshot.devices[0].trace.save(where)
        return
    if where.suffix == ".json":
        where.write_text(to_json(snapshot), encoding="ascii")
        return
    with without_collection():
        document = to_plain(snapshot)
        with where.open("wb") as file:
            pickle.dump(document, file, protocol=PROTOCOL)


def to_json(snapshot: Snapshot) -> str:
    """Return the snapshot as JSON text. Raises Error."""
    return json.dumps(to_plain(snapshot), separators=(",", ":"))


def to_plain(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as dict, list, tuple, str, int, float, bool and None. Raises Error."""
    count = max((one.device + 1 for one in snapshot.devices), default=0)
    traces: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    segments: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    frames = writing.Frames(snapshot.sites)
    for one in snapshot.devices:
        shown = one if _has_addresses(one) else of_trace(with_addresses(one.trace))
        traces[one.device] = writing.events_of(shown, frames)
        segments += writing.segments_of(shown, frames)
        notes += writing.annotations_of(one)
        if max(map(writing.highest_address, (traces[one.device], segments))) >= _ADDRESS_LIMIT:
            raise Error("an address of 2^53 or more does not fit into the numbers of the viewer")
    document = {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {**snapshot.settings, **_told(snapshot)},
        "external_annotations": notes,
    }
    parts = [beside.of_snapshot(one) for one in snapshot.devices if one.counters]
    return document | ({beside.KEY: beside.together(parts)} if parts else {})


def _told(snapshot: Snapshot) -> dict[str, int]:
    """Return settings with what others have of each device, for readers of traces."""
    return {
        f"{OTHER_BYTES}.{one.device}": int(one.counters.get("other_bytes", 0))
        for one in snapshot.devices
        if one.counters.get("device_bytes")
    }


def _has_addresses(seen: DeviceSnapshot) -> bool:
    lives = seen.lives
    return bool((lives.address[lives.size_bytes > 0] > 0).all())


# ---- reading


def read_file(path: str | Path) -> Parts:
    """Read a file of save(), a snapshot of PyTorch, or a gmlake trace. Raises TraceError."""
    try:
        return understand(*load_document(path))
    except TraceError as error:
        raise TraceError(error.reason, event=error.event, path=str(path)) from None
    except MemoryError:
        raise TraceError("needs more memory than this machine has", path=str(path)) from None


def understand(document: object, size_bytes: int = 1 << 40) -> Parts:
    """Return what a document holds that was read from so many bytes. Raises TraceError."""
    if isinstance(document, Trace):
        return (of_trace(document),), {}, dict(document.settings)
    places = Places()
    traces = read_snapshot(document, size_bytes)
    top: dict[str, Any] = document if type(document) is dict else {"segments": document}
    segments: dict[int, list[dict[str, Any]]] = {}
    for segment in top.get("segments", ()):
        segments.setdefault(segment.get("device", 0), []).append(segment)
    devices = tuple(
        _of_pytorch(
            trace, _device_events(top, trace.device), segments.get(trace.device, []), places
        )
        for trace in traces
    )
    for seen in devices:
        apply_annotations(seen, _device_events(top, seen.device), places.sites)
    if beside.KEY in top:
        devices = beside.apply(devices, top[beside.KEY], Visits(size_bytes))
    return devices, places.sites, dict(traces[0].settings)


def _of_pytorch(
    trace: Trace,
    events: Events,
    segments: list[dict[str, Any]],
    places: Places,
) -> DeviceSnapshot:
    """Add call sites, which traces cannot hold, to a trace."""
    seen = of_trace(trace)
    is_event = trace.requests["kind"] != Kind.MARK
    seen.event_sites[is_event] = values_of_rows(events, places.number_of, np.uint64)
    blocks = dict(_block_sites(segments, places))
    if blocks:
        held = seen.ranges["address"].tolist()
        is_used = seen.ranges["is_used"]
        found = np.array([blocks.get(address, 0) for address in held], np.uint64)
        seen.ranges["site"] = np.where(is_used, found, 0)
        start = trace.start_blocks
        ended = np.isin(start["id"], trace.requests["id"][trace.requests["kind"] == Kind.FREE])
        sites = [blocks.get(address, 0) for address in start["address"].tolist()]
        seen.start_sites[:] = np.where(ended, 0, np.array(sites, np.uint64))
    name_ranges(seen)
    return seen


def _device_events(top: dict[str, Any], device: int) -> Events:
    """Return the raw events of a device; all of them were checked before."""
    traces: Any = top.get("device_traces", ())
    return traces[device] if device < len(traces) else ()


def _block_sites(segments: list[dict[str, Any]], places: Places) -> Iterator[tuple[int, int]]:
    for segment in segments:
        position = segment["address"]
        for block in segment.get("blocks", ()):
            position = block.get("address", position)
            number = places.number_of(block)
            if number:
                yield position, number
            position += block["size"]
