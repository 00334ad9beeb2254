"""Snapshots in files: PyTorch's format, with gmlake's further data beside it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import Error, TraceError
from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots import entries, writing
from gmlake.snapshots.annotations import apply_annotations
from gmlake.snapshots.entries import Visits, values_of_rows
from gmlake.snapshots.model import (
    PIECE,
    RANGE,
    SPAN,
    UNKNOWN,
    DeviceSnapshot,
    SpanKind,
    name_ranges,
)
from gmlake.snapshots.opening import load_document, without_collection
from gmlake.snapshots.reading import read_snapshot
from gmlake.snapshots.sites import Places, Site
from gmlake.snapshots.traces import check, of_trace, with_addresses
from gmlake.trace.layout import LARGEST_SIZE, REQUEST, Kind, Records
from gmlake.trace.trace import OTHER_BYTES, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gmlake.snapshots.entries import Entry, Events
    from gmlake.snapshots.whole import Snapshot

    Parts = tuple[tuple[DeviceSnapshot, ...], dict[int, Site], dict[str, Any]]

PROTOCOL: Final = 4
"""The viewer's own unpickler knows no later one."""

_KEY: Final = "gmlake"
_VERSION: Final = 2
_ADDRESS_LIMIT: Final = 1 << 53  # the viewer's numbers are doubles
_LONGEST_TEXT: Final = 400
_MOST_COUNTERS: Final = 1000
_HIGHEST_COUNT: Final = 1 << 62  # so that sums with sizes stay below 2^63
_GROUPS: Final = ("states", "driver_calls", "driver_call_ns")
"""The counters that have names of their own."""
_OTHERS: Final = (Kind.TRIM, Kind.MARK, *writing.SEGMENT_KINDS)  # may be no event of the format
_OTHER_COLUMNS: Final = ("id", "time_ns", "kind", "size_bytes", "address", "stream")
_OTHER_ROW: Final = np.dtype([(name, "<u8") for name in ("where", *_OTHER_COLUMNS, "site")])


# ---- writing


def save(snapshot: Snapshot, path: str | Path) -> None:
    """Write JSON if the name ends in .json, else a pickle. Raises OSError, Error."""
    where = Path(path)
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
    frames = writing.Frames(snapshot.sites)
    beside = []
    for one in snapshot.devices:
        shown = one if _has_addresses(one) else of_trace(with_addresses(one.trace))
        traces[one.device], told = writing.events_of(shown, frames)
        segments += writing.segments_of(shown, frames)
        _check_addresses(traces[one.device], segments)
        beside.append(_beside(one, told))
    document = writing.document_of(segments, traces, {**snapshot.settings, **_told(snapshot)})
    document[_KEY] = {
        "version": _VERSION,
        "sites": [
            [number, site.scope, site.phase, list(site.frames)]
            for number, site in snapshot.sites.items()
        ],
        "devices": beside,
    }
    return document


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


def _check_addresses(*tables: list[dict[str, Any]]) -> None:
    for table in tables:
        if writing.highest_number(table) >= _ADDRESS_LIMIT:
            msg = "an address of 2^53 or more does not fit into the numbers of the viewer"
            raise Error(msg)


def _beside(seen: DeviceSnapshot, told: list[int]) -> dict[str, Any]:
    """Return the data that the format cannot hold. told: the rows that are an event there."""
    is_told = np.zeros(len(seen.events), np.bool_)
    is_told[told] = True
    # Requested frees of blocks that are never freed are left out.
    other = np.flatnonzero(~is_told & np.isin(seen.events["kind"], _OTHERS))
    rows = seen.events[other]
    columns = (
        np.cumsum(is_told)[other],
        *(rows[name] for name in _OTHER_COLUMNS),
        seen.event_sites[other],
    )
    return {
        "device": seen.device,
        "total_events": seen.total_events,
        "counters": {name: _plain(value) for name, value in seen.counters.items()},
        "stream_pairs": [dict(pair) for pair in seen.stream_pairs],
        "regions": [list(row) for row in seen.spans.tolist()],
        "ranges": [list(row) for row in seen.ranges.tolist()],
        "pieces": [list(row) for row in seen.pieces.tolist()],
        "labels": list(seen.trace.labels),
        "others": [list(row) for row in zip(*(each.tolist() for each in columns), strict=True)],
    }


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, dict) else value


# ---- reading


def load(path: str | Path) -> Parts:
    """Read a file of save(), a snapshot of PyTorch, or a gmlake trace. Raises TraceError."""
    document, size_bytes = load_document(path)
    try:
        return understand(document, size_bytes)
    except TraceError as error:
        raise TraceError(error.reason, event=error.event, path=str(path)) from None
    except MemoryError:
        reason = "needs more memory than this machine has"
        raise TraceError(reason, path=str(path)) from None


def understand(document: object, size_bytes: int) -> Parts:
    """Return what a document holds that was read from so many bytes. Raises TraceError."""
    if isinstance(document, Trace):
        return (of_trace(document),), {}, dict(document.settings)
    if type(document) is dict and type(document.get(_KEY)) is dict:
        return _read_own(document, size_bytes)
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
        seen.start_sites[:] = _start_values(trace, blocks, 0)
    name_ranges(seen)
    return seen


def _start_values(trace: Trace, by_address: dict[int, int], absent: int) -> Records:
    """Return the value at each start block's address; `absent` for those freed since."""
    start = trace.start_blocks
    ended = np.isin(start["id"], trace.requests["id"][trace.requests["kind"] == Kind.FREE])
    places = zip(start["address"].tolist(), ended.tolist(), strict=True)
    return np.array(
        [absent if is_over else by_address.get(address, absent) for address, is_over in places],
        np.uint64,
    )


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


def _read_own(document: dict[Any, Any], size_bytes: int) -> Parts:
    """Read the data of `_beside`; every part of it may be wrong, or hostile."""
    beside = document[_KEY]
    if beside.get("version") != _VERSION:
        reason = f"written by another version of gmlake ({entries.show(beside.get('version'))})"
        raise TraceError(reason)
    left = Visits(size_bytes)
    # Marks are stored beside the events, and annotations would add others.
    plain = {**document, "external_annotations": []}
    traces = {trace.device: trace for trace in read_snapshot(plain, size_bytes)}
    sites = _read_sites(beside, left)
    devices: dict[int, DeviceSnapshot] = {}
    for index, raw in enumerate(entries.list_of(beside.get("devices", []), "'devices'")):
        entry = entries.entry_of(raw, f"device {index} of gmlake's part")
        number = entries.integer(entry, "device", "gmlake's part", low=0, high=1 << 16)
        if number in devices:
            reason = f"gmlake's part describes device {number} twice"
            raise TraceError(reason)
        trace = traces.get(number, Trace(np.zeros(0, REQUEST), device=number))
        devices[number] = _restore(entry, trace, _device_events(document, number), left)
    settings = next(iter(traces.values())).settings
    return tuple(devices.values()), sites, dict(settings)


def _read_sites(beside: dict[Any, Any], left: Visits) -> dict[int, Site]:
    sites = {}
    for row in entries.list_of(beside.get("sites", []), "'sites'"):
        match row:
            case [int() as number, str() as scope, str() as phase, list() as frames] if (
                0 <= number < 1 << 64
            ):
                left.spend(1 + len(frames[:256]))
                texts = (text[:_LONGEST_TEXT] for text in frames[:256] if type(text) is str)
                sites[number] = Site(scope[:_LONGEST_TEXT], phase[:_LONGEST_TEXT], tuple(texts))
            case _:
                reason = "an entry of 'sites' is not [number, scope, phase, frames]"
                raise TraceError(reason)
    return sites


def _restore(entry: dict[Any, Any], trace: Trace, events: Events, left: Visits) -> DeviceSnapshot:
    """Return a device. events: the entries that the rows of its trace are from."""
    event_sites = values_of_rows(events, _site_of, np.uint64)
    names = {name: number for number, name in enumerate(CATEGORIES)}
    categories = np.full(trace.id_count, UNKNOWN, np.int8)
    is_alloc = trace.requests["kind"] == Kind.ALLOC
    if len(event_sites) == len(trace.requests):
        of_event = values_of_rows(events, lambda event: _category(event, names), np.int8)
        has_id = np.isin(trace.requests["kind"], (Kind.FREE, Kind.FREE_REQUESTED))
        for chosen in (has_id, is_alloc):
            categories[trace.requests["id"][chosen]] = of_event[chosen]
    if len(event_sites) != len(trace.requests):
        reason = (
            f"gmlake's part describes a device {trace.device} that differs in the rest of the file"
        )
        raise TraceError(reason)
    is_whole = values_of_rows(events, _is_whole, np.bool_)
    others = _table(entry, "others", _OTHER_ROW, left)
    requests, event_sites = _with_others(others, trace.requests[is_whole], event_sites[is_whole])
    said = entries.list_of(entry.get("labels", []), "'labels'")
    left.spend(len(said))
    labels = [text[:_LONGEST_TEXT] if type(text) is str else "" for text in said]
    trace.requests, trace.labels = requests, tuple(labels)
    check(trace)
    spans = _table(entry, "regions", SPAN, left)
    ranges = _table(entry, "ranges", RANGE, left)
    pieces = _table(entry, "pieces", PIECE, left)
    _check_tables(spans, ranges, pieces)
    seen = DeviceSnapshot(
        device=trace.device,
        trace=trace,
        event_sites=event_sites,
        start_sites=np.zeros(len(trace.start_blocks), np.uint64),
        categories=categories,
        spans=spans,
        ranges=ranges,
        pieces=pieces,
        counters=_counters(entry.get("counters", {})),
        stream_pairs=_stream_pairs(entry, left),
        total_events=entries.integer(
            entry, "total_events", "gmlake's part", low=0, high=1 << 63, default=0
        ),
        has_reserved_events=bool(np.isin(requests["kind"], writing.SEGMENT_KINDS).any()),
    )
    _name_start_blocks(seen)
    return seen


def _site_of(event: Entry) -> int:
    site = event.get("site", 0)
    if type(site) is int and 0 <= site < 1 << 64:
        return site
    reason = "'site' of an event is not a number"
    raise TraceError(reason)


def _is_whole(event: Entry) -> bool:
    return event.get(writing.PART) is not True


def _category(event: Entry, names: dict[str, int]) -> int:
    name = event.get("category")
    return names.get(name, UNKNOWN) if type(name) is str else UNKNOWN


def _name_start_blocks(seen: DeviceSnapshot) -> None:
    """Give blocks that lived through all events the site and category of their range."""
    held = seen.blocks
    addresses = held["address"].tolist()
    sites = dict(zip(addresses, held["site"].tolist(), strict=True))
    categories = dict(zip(addresses, held["category"].tolist(), strict=True))
    seen.start_sites[:] = _start_values(seen.trace, sites, 0)
    found = _start_values(seen.trace, categories, UNKNOWN)
    is_known = found != UNKNOWN
    seen.categories[seen.trace.start_blocks["id"][is_known]] = found[is_known]


def _check_tables(spans: Records, ranges: Records, pieces: Records) -> None:
    if any((table["span"] >= len(spans)).any() for table in (ranges, pieces)):
        reason = "a range names a span that does not exist"
        raise TraceError(reason)
    if not np.isin(spans["kind"], tuple(SpanKind)).all():
        reason = "a span is of an unknown kind"
        raise TraceError(reason)
    for table in (spans, ranges, pieces):
        if (table["size_bytes"] > LARGEST_SIZE).any() or (table["address"] >= 1 << 63).any():
            reason = "a span or range is outside any device's addresses"
            raise TraceError(reason)
    for table in (ranges, pieces):
        _check_inside(spans, table)
    categories = ranges["category"]
    categories[(categories < 0) | (categories >= len(CATEGORIES))] = UNKNOWN


def _check_inside(spans: Records, table: Records) -> None:
    """Raise TraceError unless the rows of each span follow each other, inside of it."""
    around = spans[table["span"]]
    begin, end = table["address"], table["address"] + table["size_bytes"]
    is_inside = (begin >= around["address"]) & (end <= around["address"] + around["size_bytes"])
    is_next = (table["span"][1:] != table["span"][:-1]) | (begin[1:] >= end[:-1])
    if not (is_inside.all() and is_next.all()):
        reason = "a range lies outside its span, or over the one before it"
        raise TraceError(reason)


def _with_others(table: Records, requests: Records, sites: Records) -> tuple[Records, Records]:
    """Insert the events for which the format has no action, or several entries."""
    if not len(table):
        return requests, sites
    rows = np.zeros(len(table), REQUEST)
    for name in _OTHER_COLUMNS:
        rows[name] = table[name]
    where = np.minimum(table["where"], len(requests)).astype(np.int64)
    if not np.isin(table["kind"], _OTHERS).all():
        reason = "'others' has an event that is neither a mark, a trim nor of a segment"
        raise TraceError(reason)
    highest = np.maximum(np.maximum(rows["id"], rows["time_ns"]), rows["address"])
    if (rows["size_bytes"] > LARGEST_SIZE).any() or (highest >= 1 << 63).any():
        reason = "'others' has a number that no event has"
        raise TraceError(reason)
    return np.insert(requests, where, rows), np.insert(sites, where, table["site"])


def _table(entry: dict[Any, Any], name: str, dtype: np.dtype[Any], left: Visits) -> Records:
    rows = entries.list_of(entry.get(name, []), repr(name))
    left.spend(len(rows) * len(dtype.names or ()))
    try:
        return np.array([tuple(row) for row in rows], dtype)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        reason = f"{name!r} is not a table of {len(dtype.names or ())} numbers a row"
        raise TraceError(reason) from None


def _stream_pairs(entry: dict[Any, Any], left: Visits) -> list[dict[str, int]]:
    pairs = []
    for raw in entries.list_of(entry.get("stream_pairs", []), "pairs"):
        left.spend(1 + len(entries.entry_of(raw, "a pair")))
        pairs.append(dict(_counts(raw, (1 << 64) - 1)))
    return pairs


def _counters(raw: object) -> dict[str, Any]:
    """Keep whole numbers, and one level of named ones where a lake has them."""
    entry = entries.entry_of(raw, "'counters'")
    kept: dict[str, Any] = dict(_counts(entry, _HIGHEST_COUNT))
    for name in _GROUPS:
        if type(entry.get(name)) is dict:
            kept[name] = dict(_counts(entry[name], _HIGHEST_COUNT))
        else:
            kept.pop(name, None)
    return kept


def _counts(entry: object, highest: int) -> Iterator[tuple[str, int]]:
    for name, value in list(entries.entry_of(entry, "counters").items())[:_MOST_COUNTERS]:
        if type(name) is str and type(value) is int and 0 <= value <= highest:
            yield name[:_LONGEST_TEXT], value
