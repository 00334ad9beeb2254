"""Takes snapshots of lakes, with PyTorch's knowledge of those that serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.model import (
    PIECE,
    RANGE,
    SPAN,
    UNKNOWN,
    DeviceSnapshot,
    SpanKind,
    name_ranges,
)
from gmlake.snapshots.pools import UNNAMED, PoolNumbers, name_pools
from gmlake.snapshots.sites import Site
from gmlake.trace.layout import FINAL_BLOCK, REQUEST, SEGMENT, START_BLOCK, Kind, Records
from gmlake.trace.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gmlake import _core

_TRIES: Final = 4
_COUNTED: Final = ("allocations", "frees")
_KINDS: Final = {
    "base": SpanKind.BASE,
    "view": SpanKind.VIEW,
    "segment": SpanKind.SEGMENT,
}


def capture(lake: _core.Lake, device: int = 0) -> DeviceSnapshot:
    """Copy a lake's memory and the events that it kept."""
    counters, events, sites, total, spans = _agreeing(lake)
    tables = span_tables(spans)
    trace, event_sites, start_sites = _trace_of(events, sites, tables, dict(providers.labels()))
    trace.device = device
    seen = DeviceSnapshot(
        device=device,
        trace=trace,
        event_sites=event_sites,
        start_sites=start_sites,
        categories=np.full(trace.id_count, UNKNOWN, np.int8),
        spans=tables[0],
        ranges=tables[1],
        pieces=tables[2],
        counters=dict(counters),
        stream_pairs=[cast("dict[str, int]", dict(pair)) for pair in lake.stream_pairs()],
        total_events=total,
        has_reserved_events=True,
    )
    _classify(seen)
    name_ranges(seen)
    return seen


# ---- one moment


def _agreeing(
    lake: _core.Lake,
) -> tuple[_core.Stats, Records, NDArray[np.uint64], int, list[_core.Span]]:
    """Copy counters, spans and events; retry if the program went on meanwhile.

    A program that never stops gets the last try, without the events behind the spans; its
    counters may be of a moment later.
    """
    for _ in range(_TRIES):
        before = lake.stats()
        spans = lake.spans()
        raw, numbers, total = lake.history_sites()
        counters = lake.stats()
        is_still = all(before[name] == counters[name] for name in _COUNTED)
        if is_still:
            break
    events, sites = np.frombuffer(raw, REQUEST), np.frombuffer(numbers, "<u8")
    count = len(events) if is_still else _count_until(events, spans)
    total -= len(events) - count
    return counters, events[:count].copy(), sites[:count].copy(), total, spans


def _count_until(events: Records, spans: Sequence[_core.Span]) -> int:
    """Return how many of the events there were when the spans were copied.

    That is where the live addresses are those of the spans, or differ the least.
    """
    held = {
        address
        for span in spans
        for address, _, requested, is_used in span["ranges"]
        if is_used and requested
    }
    kind = events["kind"]
    has_place = ((kind == Kind.ALLOC) | (kind == Kind.FREE)) & (events["size_bytes"] > 0)
    rows = np.flatnonzero(has_place).tolist()
    addresses = events["address"][rows].tolist()
    is_alloc = (kind[rows] == Kind.ALLOC).tolist()
    is_live = dict(zip(addresses, is_alloc, strict=True))  # behind the last event
    wrong = {address for address, live in is_live.items() if live != (address in held)}
    best, fewest = len(events), len(wrong)
    for place in range(len(rows) - 1, -1, -1):
        if not fewest:
            break
        address = addresses[place]
        if is_alloc[place] == (address in held):
            wrong.add(address)
        else:
            wrong.discard(address)
        if len(wrong) < fewest:
            best, fewest = rows[place], len(wrong)
    is_whole_free = 0 < best < len(events) and events["id"][best - 1] == events["id"][best]
    return best - 1 if is_whole_free and kind[best - 1] == Kind.FREE_REQUESTED else best


def span_tables(spans: Sequence[_core.Span]) -> tuple[Records, Records, Records]:
    """Return spans, their ranges and their pieces as arrays."""
    table = np.zeros(len(spans), SPAN)
    ranges: list[tuple[int, int, int, int, int, int, bool]] = []
    pieces: list[tuple[int, int, int, int]] = []
    for number, span in enumerate(spans):
        table[number] = (
            *(span["address"], span["size"], span["stream"], *span["pool"]),
            *(_KINDS[span["kind"]], span["is_small"]),
        )
        ranges += [
            (address, size, requested if is_used else 0, 0, number, UNKNOWN, is_used)
            for address, size, requested, is_used in span["ranges"]
        ]
        pieces += [(*piece, number) for piece in span["pieces"]]
    return table, np.array(ranges, RANGE), np.array(pieces, PIECE)


# ---- events


def _trace_of(
    events: Records,
    sites: NDArray[np.uint64],
    tables: tuple[Records, Records, Records],
    labels: dict[int, str],
) -> tuple[Trace, NDArray[np.uint64], NDArray[np.uint64]]:
    """Number the allocations densely, and find the blocks live before the first event."""
    spans, ranges, _ = tables
    kind = events["kind"]
    has_id = (kind == Kind.ALLOC) | (kind == Kind.FREE) | (kind == Kind.FREE_REQUESTED)
    numbers, first, dense = np.unique(events["id"][has_id], return_index=True, return_inverse=True)
    rows = np.flatnonzero(has_id)
    is_allocated = np.zeros(len(numbers), np.bool_)
    is_allocated[dense[kind[rows] == Kind.ALLOC]] = True
    earlier = events[rows[first[~is_allocated]]]
    used = ranges[ranges["is_used"] & (ranges["requested_bytes"] > 0)]
    survivors = used[~np.isin(used["address"], events["address"][has_id])]
    start = np.zeros(len(earlier) + len(survivors), START_BLOCK)
    start["address"] = np.concatenate([earlier["address"], survivors["address"]])
    start["requested_bytes"] = np.concatenate([earlier["size_bytes"], survivors["requested_bytes"]])
    start["block_bytes"][len(earlier) :] = survivors["size_bytes"]
    start["block_bytes"][: len(earlier)] = (earlier["size_bytes"] + np.uint64(511)) // 512 * 512
    start["stream"] = np.concatenate([earlier["stream"], spans["stream"][survivors["span"]]])
    start["id"] = np.arange(len(start))
    ids = np.zeros(len(numbers), np.uint64)
    ids[~is_allocated] = np.arange(len(earlier))
    ids[is_allocated] = len(start) + np.arange(int(is_allocated.sum()))
    requests = events.copy()
    pools = _name_pools(requests, spans)
    requests["id"] = 0
    requests["id"][rows] = ids[dense]
    sites[(kind == Kind.MARK) | (kind == Kind.TRIM)] = 0  # of memory not in the snapshot
    marks = np.flatnonzero(kind == Kind.MARK)
    mark_numbers, which = np.unique(events["id"][marks], return_inverse=True)
    requests["id"][marks] = which
    segments, blocks = _final(spans, ranges)
    trace = Trace(
        requests=requests,
        start_blocks=start[np.argsort(start["address"], kind="stable")],
        final_segments=segments,
        final_blocks=blocks,
        pools=pools,
        labels=tuple(labels.get(number, f"mark {number}") for number in mark_numbers.tolist()),
    )
    return trace, sites, np.zeros(len(start), np.uint64)


def _name_pools(requests: Records, spans: Records) -> tuple[tuple[int, int], ...]:
    """Set the private pool of each event by the memory held at the end; return the pools."""
    numbers = PoolNumbers()
    spans = spans[np.argsort(spans["address"], kind="stable")]
    ids = zip(spans["pool_owner"].tolist(), spans["pool_number"].tolist(), strict=True)
    of_spans = np.array([numbers.number(pool) for pool in ids], np.uint32)
    requests["pool"] = UNNAMED
    name_pools(requests, spans, of_spans, is_expandable=True)
    return numbers.pools


def _final(spans: Records, ranges: Records) -> tuple[Records, Records]:
    """Return the reserved memory as the final state of a trace, without the views."""
    is_real = np.isin(spans["kind"], (SpanKind.BASE, SpanKind.SEGMENT))
    segments = np.zeros(int(is_real.sum()), SEGMENT)
    for name in SEGMENT.names or ():
        segments[name] = spans[name][is_real]
    parts = ranges[is_real[ranges["span"]]]
    blocks = np.zeros(len(parts), FINAL_BLOCK)
    blocks["address"], blocks["block_bytes"] = parts["address"], parts["size_bytes"]
    blocks["requested_bytes"], blocks["is_used"] = parts["requested_bytes"], parts["is_used"]
    return (
        segments[np.argsort(segments["address"], kind="stable")],
        blocks[np.argsort(blocks["address"], kind="stable")],
    )


# ---- what PyTorch's side knows


@dataclass
class Providers:
    """PyTorch's knowledge of the lakes that serve it; empty without PyTorch.

    The modules of gmlake.pytorch fill it in when they are imported. lakes: by device. shares: how a
    device's memory is divided, given the bytes that its lake holds. sites, labels: those of a
    recording, by number; read them after the events that name them. categories: of each
    allocation, an index into CATEGORIES by its id.
    """

    lakes: Callable[[], Mapping[int, _core.Lake]] = dict
    shares: Callable[[int, int], dict[str, int]] = lambda _device, _held_bytes: {}
    sites: Callable[[], Mapping[int, Any]] = dict
    labels: Callable[[], Mapping[int, str]] = dict
    categories: Callable[[DeviceSnapshot], NDArray[np.int8]] | None = None


providers: Final = Providers()


def places_by_number() -> dict[int, Site]:
    """Return the sites that a recording keeps."""
    return {
        number: Site(one.scope or "", one.phase or "", tuple(map(str, one.frames or ())))
        for number, one in providers.sites().items()
    }


def _classify(seen: DeviceSnapshot) -> None:
    """Fill in the categories from a recording."""
    if providers.categories is not None:
        found = np.asarray(providers.categories(seen), np.int8)
        is_known = (found >= 0) & (found < len(CATEGORIES))
        seen.categories[:] = np.where(is_known, found, UNKNOWN)
