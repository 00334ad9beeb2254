"""Reads PyTorch memory snapshots: plain data in, one Trace per device out.

A snapshot holds the allocator's final state and the events that led to it. The blocks live before
the first event are derived: those that are live at the end and were never allocated, and those
freed without having been allocated. The segments at the start are the final ones with every segment
event undone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.snapshots import entries
from gmlake.snapshots.entries import (
    NOT_MEMORY,
    SEGMENT_KINDS,
    Entry,
    Events,
    EventTable,
    Named,
    Visits,
    is_row,
)
from gmlake.snapshots.pools import (
    NO_POOL,
    OF_POOLS,
    UNNAMED,
    PoolNumbers,
    is_note,
    name_pools,
    pool_id,
)
from gmlake.snapshots.sites import latest_use
from gmlake.snapshots.spans import Spans
from gmlake.trace.layout import (
    LARGEST_SIZE,
    RANGE,
    REQUEST,
    SMALL_SEGMENT,
    SPAN,
    START_BLOCK,
    Kind,
    Records,
    SpanKind,
)
from gmlake.trace.trace import STEP_ENDS, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIVE_STATES: Final = {"active_allocated", "active_pending_free", "active_awaiting_free"}
_STATES: Final = {*_LIVE_STATES, "inactive"}
_MAX_DEVICES: Final = 1 << 16
_MAX_SETTINGS: Final = 256
_NO_END: Final = 1 << 63


Segment = tuple[int, int, int, int, int, bool]
"""(address, bytes, stream, owner and number of the pool, whether it is small)."""


@dataclass
class _State:
    """The file's data about one device, before events and final state are combined."""

    spans: Records = field(default_factory=lambda: np.zeros(0, SPAN))
    ranges: Records = field(default_factory=lambda: np.zeros(0, RANGE))
    events: EventTable = field(default_factory=lambda: EventTable.of(()))
    pool_note: Entry | None = None
    is_expandable: bool = False


def read_snapshot(data: object, budget: int = 1 << 40) -> list[Trace]:
    """Return one trace for each device with segments or events, by device; at least one.

    `data` is what torch.cuda.memory._snapshot() returns, or only its list of segments. `budget`
    bounds the entries visited. Raises TraceError.
    """
    top = data if type(data) is dict else {"segments": data}
    if "segments" not in top and "device_traces" not in top:
        raise TraceError("not a memory snapshot: neither 'segments' nor 'device_traces' in it")
    if type(data) not in (dict, list, tuple):
        raise TraceError(f"not a memory snapshot: the file holds {entries.show(data)}")
    left = Visits(budget)
    states = _read_states(top, left)
    settings = _read_settings(top.get("allocator_settings"))
    annotations, pool_notes = _read_annotations(top.get("external_annotations"), left)
    for device, state in states.items():
        state.pool_note = pool_notes.get(device)
    traces = [
        _build(device, states[device], settings, annotations.get(device, _Annotations()))
        for device in sorted(states)
    ]
    # Taking a snapshot leaves an event on every device, used or not.
    used = [trace for trace in traces if len(trace.requests) or len(trace.spans)]
    return used or [Trace(np.zeros(0, REQUEST), settings=settings)]


def _read_states(top: Entry, budget: Visits) -> dict[int, _State]:
    states = _read_segments(top, budget)
    traces = entries.list_of(top.get("device_traces", []), "'device_traces'")
    budget.spend(len(traces))
    for device, raw in enumerate(traces[:_MAX_DEVICES]):
        events: Events = raw if isinstance(raw, EventTable) else ()
        events = events or entries.list_of(raw, f"device_traces[{device}]")
        budget.spend(len(events))
        if events:
            states.setdefault(device, _State()).events = entries.table_of(events)
    if len(states) > entries.MOST_DEVICES:
        raise TraceError(
            f"refused: memory of {len(states)} devices; at most {entries.MOST_DEVICES} are read"
        )
    return states


# ---- the final state


def _read_segments(top: Entry, budget: Visits) -> dict[int, _State]:
    """Return segments and blocks at the end, each by address, of every device that has any."""
    found = entries.list_of(top.get("segments", []), "'segments'")
    budget.spend(len(found))
    segments = [entries.entry_of(raw, f"segment {index}") for index, raw in enumerate(found)]

    def named(index: int) -> tuple[str, int | None]:
        return f"segment {index}", None

    devices = entries.integers(segments, "device", named, high=_MAX_DEVICES, default=0)
    table = np.zeros(len(segments), SPAN)
    table["kind"] = SpanKind.SEGMENT
    table["address"], table["size_bytes"] = entries.extents(
        segments, ("address", "total_size"), named
    )
    table["stream"] = entries.streams(segments, named)
    pools = [pool_id(one, "segment_pool_id", f"segment {n}") for n, one in enumerate(segments)]
    table["pool_owner"], table["pool_number"] = np.array(pools, np.uint64).reshape(-1, 2).T
    table["is_small"] = [one.get("segment_type", "large") == "small" for one in segments]
    is_expandable = np.array([one.get("is_expandable") is True for one in segments], np.bool_)
    blocks, owners = _read_blocks(segments, table, budget)
    states = {}
    for device in np.unique(devices).tolist():
        is_its = devices == device
        mine, its_blocks = table[is_its], blocks[is_its[owners]]
        states[device] = _State(
            mine[np.lexsort([mine[name] for name in reversed(SPAN.names or ())])],
            its_blocks[np.lexsort((its_blocks["size_bytes"], its_blocks["address"]))],
            is_expandable=bool(is_expandable[is_its].any()),
        )
    return states


def _read_blocks(
    segments: list[Entry], table: Records, budget: Visits
) -> tuple[Records, NDArray[np.int64]]:
    """Return the blocks of all segments as in the file, and the segment of each."""
    lists = [
        entries.list_of(one.get("blocks", []), f"segment {index}: 'blocks'")
        for index, one in enumerate(segments)
    ]
    counts = np.array([*map(len, lists)], np.int64)
    firsts = np.cumsum(counts) - counts
    owners = np.repeat(np.arange(len(lists)), counts)
    budget.spend(len(owners))

    def named(index: int) -> tuple[str, int | None]:
        owner = int(owners[index])
        return f"segment {owner}, block {index - int(firsts[owner])}", None

    raw = [block for one in lists for block in one]
    blocks = [one if type(one) is dict else entries.entry_of(one, named(n)[0])
              for n, one in enumerate(raw)]  # fmt: skip
    result = np.zeros(len(blocks), RANGE)
    result["is_used"] = _are_used(blocks, named)
    sizes = result["size_bytes"] = entries.integers(blocks, "size", named, high=LARGEST_SIZE + 1)
    result["address"] = _addresses(blocks, named, sizes, table["address"][owners], firsts)
    ends = result["address"] + sizes
    least = table["address"][owners]
    follows = np.flatnonzero(owners[1:] == owners[:-1]) + 1
    least[follows] = ends[follows - 1]
    is_outside = (result["address"] < least) | (sizes > table["size_bytes"][owners])
    is_outside |= ends < result["address"]
    is_outside |= ends > (table["address"] + table["size_bytes"])[owners]
    if is_outside.any():
        what, _ = named(int(np.argmax(is_outside)))
        raise TraceError(f"{what} lies outside its segment or overlaps the block before it")
    result["requested_bytes"] = np.where(
        result["is_used"], _requested(blocks, named, sizes), np.uint64(0)
    )
    return result, owners


def _are_used(blocks: list[Entry], named: Named) -> list[bool]:
    states = [block.get("state") for block in blocks]
    if not ({*map(type, states)} <= {str} and _STATES.issuperset(states)):
        for index, state in enumerate(states):
            if type(state) is not str or state not in _STATES:
                known = ", ".join(sorted(_STATES))
                raise TraceError(
                    f"{named(index)[0]}: 'state' is {entries.show(state)}; known are {known}"
                )
    return [state in _LIVE_STATES for state in states]


def _addresses(
    blocks: list[Entry], named: Named, sizes: Records, starts: Records, firsts: Records
) -> Records:
    """Return where blocks lie: one after another in files of before PyTorch 2.1, which do not say.

    starts: of the segment of each. firsts: the first block of each segment.
    """
    if all("address" in block for block in blocks):
        return entries.integers(blocks, "address", named, high=entries.ADDRESS_LIMIT)
    is_first = {*firsts.tolist()}
    result, position = [], 0
    for index, (block, start, size) in enumerate(
        zip(blocks, starts.tolist(), sizes.tolist(), strict=True)
    ):
        position = start if index in is_first else position
        what, _ = named(index)
        if "address" in block:
            position = entries.integer(block, "address", what, low=0, high=entries.ADDRESS_LIMIT)
        result.append(position)
        position = min(position + size, entries.ADDRESS_LIMIT - 1)
    return np.array(result, np.uint64)


def _requested(blocks: list[Entry], named: Named, sizes: Records) -> Records:
    """Return what was asked for; the size of a block that does not say it."""
    if all("requested_size" in block for block in blocks):
        return entries.integers(blocks, "requested_size", named, high=LARGEST_SIZE + 1)
    result: Records = sizes.copy()
    for index, block in enumerate(blocks):
        if "requested_size" in block:
            what, _ = named(index)
            result[index] = entries.integer(
                block, "requested_size", what, low=0, high=LARGEST_SIZE + 1
            )
        elif "history" in block:  # of PyTorch 2.0
            real = latest_use(block).get("real_size")
            if type(real) is int and 0 < real < result[index]:
                result[index] = real
    return result


# ---- the events

_KINDS: Final = {
    "alloc": Kind.ALLOC,
    "free_completed": Kind.FREE,
    "free_requested": Kind.FREE_REQUESTED,
    "oom": Kind.OOM,
    **SEGMENT_KINDS,
}
_MAPPED: Final = ("segment_map", "segment_unmap")
_NO_ROW: Final = 0  # no kind of event


class _Events:
    """The events of a device as rows of a trace.

    requests: allocations are numbered 0, 1, ..., blocks from before the events -1, -2, ....
    before: the latter, dtype START_BLOCK, in that order. named: the addresses of blocks that occur,
    ascending.
    """

    def __init__(self, table: EventTable, pool_note: Entry | None) -> None:
        """Read them. Raises TraceError."""
        self.pools = PoolNumbers()
        self._table = table
        of_shared = self._kinds()
        kind = of_shared[table.rows["id"]]
        self._events = np.flatnonzero(kind != _NO_ROW)  # the event of each row
        is_all = len(self._events) == len(kind)
        requests = table.rows.copy() if is_all else table.rows[self._events]
        requests["kind"] = kind if is_all else kind[self._events]
        self._set_numbers(requests)
        requests["time_ns"] *= np.uint64(1000)
        self._set_pools(requests, of_shared)
        requests["id"] = 0
        self.requests: Records = requests.view(_SIGNED_REQUEST)
        for row in np.flatnonzero(requests["kind"] == Kind.OOM).tolist():
            self.requests[row] = self._refusal(int(self._events[row]))
        before, self.named = self._match()
        self.before = np.zeros(len(before), START_BLOCK)
        for name, column in (("address", "address"), ("requested_bytes", "size_bytes")):
            self.before[name] = requests[column][before]
        self.before["stream"] = requests["stream"][before]
        self.has_mapped = any(
            kind != _NO_ROW and entry["action"] in _MAPPED
            for entry, kind in zip(table.shared, of_shared.tolist(), strict=True)
        )
        noted = self.pools.of_note(pool_note, len(table))
        if noted is not None:  # the pool of each row whose event does not name it
            unnamed = self.requests["pool"] == UNNAMED
            self.requests["pool"][unnamed] = noted[self._events][unnamed]

    def _kinds(self) -> Records:
        """Return the kind of the rows for each shared entry."""
        table, kinds = self._table, np.full(len(self._table.shared), _NO_ROW, np.uint32)
        wrong = []
        for number, entry in enumerate(table.shared):
            action = entry.get("action") if type(entry) is dict else None
            if type(action) is not str or (action not in _KINDS and action not in NOT_MEMORY):
                wrong.append(number)
            elif is_row(entry):
                kinds[number] = _KINDS[action]
        if wrong:
            event = min(map(table.first_of, wrong))
            action = entries.entry_of(table.event(event), "the event", event).get("action")
            reason = f"the event has no 'action' that is a text but {entries.show(action)}"
            if type(action) is str:
                reason = f"the action {entries.show(action)} is not known"
            raise TraceError(reason, event=event)
        return kinds

    def _named(self, rows: Records) -> Named:
        """Return what rows of the requests are, for errors."""

        def named(index: int) -> tuple[str, int | None]:
            event = int(self._events[rows[index]])
            return self._table.event(event)["action"], event

        return named

    def _set_numbers(self, requests: Records) -> None:
        """Set the four numbers of whole events, and check those of all but refusals."""
        is_memory = requests["kind"] != Kind.OOM
        rows = np.flatnonzero(is_memory & (requests["pool"] == 1))
        whole = [self._table.shared[number] for number in requests["id"][rows].tolist()]
        named = self._named(rows)
        requests["stream"][rows] = entries.streams(whole, named)
        requests["time_ns"][rows] = entries.times_us(whole, named)
        begins, sizes = entries.extents(whole, ("addr", "size"), named)
        requests["address"][rows], requests["size_bytes"][rows] = begins, sizes
        sizes = requests["size_bytes"]
        is_usual = (sizes <= LARGEST_SIZE) & (requests["time_ns"] < entries.TIME_LIMIT)
        is_usual &= requests["address"] <= np.uint64(entries.ADDRESS_LIMIT - 1) - sizes
        if not (is_usual | ~is_memory).all():
            row = np.flatnonzero(~is_usual & is_memory)[:1]
            one = [self._table.event(int(self._events[row[0]]))]
            entries.times_us(one, self._named(row))
            entries.extents(one, ("addr", "size"), self._named(row))

    def _set_pools(self, requests: Records, of_shared: Records) -> None:
        """Set the pools that the events name."""
        pools = np.zeros(len(of_shared), np.uint32)
        for number in np.flatnonzero(np.isin(of_shared, OF_POOLS)).tolist():
            entry = self._table.shared[number]
            if "pool_id" in entry:
                event = self._table.first_of(number)
                pools[number] = self.pools.of_event(entry, entry["action"], event)
            else:
                pools[number] = UNNAMED
        of_pools = np.isin(requests["kind"], OF_POOLS)
        requests["pool"] = 0
        requests["pool"][of_pools] = pools[requests["id"][of_pools]]

    def _refusal(self, event: int) -> tuple[int, int, int, int, int, int, int]:
        entry = self._table.event(event)
        # The request was not served, so any size is possible.
        limit = entries.ADDRESS_LIMIT
        size = entries.integer(entry, "size", "oom", low=0, high=limit, event=event)
        free = entries.integer(
            entry, "device_free", "oom", low=0, high=limit, event=event, default=0
        )
        time = entries.time_ns(entry, "oom", event)
        stream = int(entries.streams([entry], lambda _: ("oom", event))[0])
        return 0, size, free, time, stream, Kind.OOM, self.pools.of_event(entry, "oom", event)

    def _match(self) -> tuple[Records, Records]:
        """Set the ids, see _match_blocks(). Raises TraceError where it contradicts itself."""
        try:
            return _match_blocks(self.requests)
        except _ContradictionError as error:
            row, former = error.args
        event, address = int(self._events[row]), int(self.requests["address"].view(np.uint64)[row])
        if self.requests["kind"][row] == Kind.ALLOC:
            reason = f"allocates {address:#x}, which is live already"
        else:
            freed = int(self._events[former])
            reason = f"frees {address:#x}, which event {freed} freed already"
        raise TraceError(reason, event=event)

    def has_named(self, addresses: Records) -> NDArray[np.bool_]:
        """Return which addresses occur in events of blocks."""
        if not len(self.named):
            return np.zeros(len(addresses), np.bool_)
        place = np.minimum(np.searchsorted(self.named, addresses), len(self.named) - 1)
        result: NDArray[np.bool_] = self.named[place] == addresses
        return result


class _ContradictionError(Exception):
    """An event contradicts the one before it at its address: the rows of both."""


def _match_blocks(requests: Records) -> tuple[Records, Records]:
    """Find the allocation that each event of a block is about, by its address, and set its id.

    Allocations are numbered 0, 1, ..., blocks from before the events -1, -2, ..., in the order in
    which events name them. Return the rows that first name each of the latter, and all addresses,
    sorted. Raises _ContradictionError for the first event that contradicts those before it.
    """
    kind = requests["kind"]
    is_alloc = kind == Kind.ALLOC
    rows = np.flatnonzero(is_alloc | (kind == Kind.FREE) | (kind == Kind.FREE_REQUESTED))
    addresses = requests["address"][rows]
    order = np.argsort(addresses, kind="stable")
    rows, addresses = rows[order], addresses[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = addresses[1:] != addresses[:-1]
    begins = is_alloc[rows]
    has_ended = np.ones(len(rows), np.bool_)
    has_ended[1:] = kind[rows[:-1]] == Kind.FREE
    is_wrong = ~is_first & (has_ended != begins)
    if is_wrong.any():
        wrong = np.flatnonzero(is_wrong)
        place = int(wrong[np.argmin(rows[wrong])])
        raise _ContradictionError(int(rows[place]), int(rows[place - 1]))
    before = np.sort(rows[is_first & ~begins])
    starts = begins | is_first
    of_starts = rows[starts]
    numbers = np.where(
        begins[starts],
        (np.cumsum(is_alloc) - 1)[of_starts],
        -1 - np.searchsorted(before, of_starts),
    )
    requests["id"][rows] = numbers[np.cumsum(starts) - 1]
    return before, addresses


def _build(
    device: int, state: _State, settings: dict[str, Any], annotations: _Annotations
) -> Trace:
    events = _Events(state.events, state.pool_note)
    before = _with_survivors(events, state)
    requests = events.requests
    is_expandable = state.is_expandable or events.has_mapped
    segments: list[Segment] = [(*one[:5], one[6]) for one in state.spans.tolist()]
    numbers = [events.pools.number(segment[3:5]) for segment in segments]
    undo = _undo_mapping if events.has_mapped else _undo_segment_events
    start_segments = undo(segments, requests, dict(enumerate(events.pools.pools, 1)))
    name_pools(requests, state.spans, np.array(numbers, np.uint32), is_expandable=is_expandable)
    order, start_blocks = _place_start_blocks(before)
    requests["id"] = _renumber(requests["id"], order)
    trace = Trace(
        requests=requests.view(REQUEST),
        start_segments=start_segments,
        start_blocks=start_blocks,
        spans=state.spans,
        ranges=state.ranges,
        device=device,
        settings=settings,
        pools=events.pools.pools,
        is_expandable=is_expandable,
    )
    trace.named = annotations.named
    return add_marks(trace, annotations.marks)


_SIGNED_REQUEST = np.dtype(
    [(name, "<i8" if name == "id" else REQUEST[name]) for name in REQUEST.names or ()]
)


def _renumber(ids: Records, order: Records) -> Records:
    """Map -1, -2, ... to the ranks of the start blocks and 0, 1, ... to the numbers after."""
    result = ids + len(order)
    is_before = ids < 0
    result[is_before] = order[-ids[is_before] - 1]
    return result


def _with_survivors(events: _Events, state: _State) -> Records:
    """Return the blocks from before the events, as they are named, then the others by address.

    The others are live at the end, and in no event. One whose address was freed in the trace was
    allocated again after recording stopped.
    """
    blocks = state.ranges
    alive = blocks[blocks["is_used"] & ~events.has_named(blocks["address"])]
    others = np.zeros(len(alive), START_BLOCK)
    others["block_bytes"] = alive["size_bytes"]
    for name in ("address", "requested_bytes"):
        others[name] = alive[name]
    place = np.searchsorted(state.spans["address"], alive["address"], side="right") - 1
    others["stream"] = state.spans["stream"][place]
    return np.concatenate([events.before, others])


# ---- segments before the events


def _spans(segments: list[Segment]) -> Records:
    return np.array([(*each[:5], SpanKind.SEGMENT, each[5]) for each in segments], SPAN)


Pools = dict[int, tuple[int, int]]
"""The ids of pools by their numbers."""


def _mapped_bytes(requests: Records) -> Records:
    """Return by how much each event changed what was reserved."""
    sizes = requests["size_bytes"].astype(np.int64)
    is_new, is_gone = (requests["kind"] == kind for kind in (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE))
    changes: Records = np.where(is_new, sizes, np.where(is_gone, -sizes, 0))
    return changes


def _undo_segment_events(final: list[Segment], requests: Records, pools: Pools) -> Records:
    held = {segment[0]: segment for segment in final}
    is_segment = (requests["kind"] == Kind.SEGMENT_ALLOC) | (requests["kind"] == Kind.SEGMENT_FREE)
    for row in requests[is_segment][::-1].tolist():
        _, size, address, _, stream, kind, pool = row
        if kind == Kind.SEGMENT_ALLOC:
            held.pop(address, None)
        else:
            owner = pools.get(pool, NO_POOL)
            held[address] = (address, size, stream, *owner, size == SMALL_SEGMENT)
    return _spans(sorted(held.values()))


def _undo_mapping(final: list[Segment], requests: Records, pools: Pools) -> Records:
    """Undo events of expandable segments, any part of which may be mapped by itself.

    gmlake's final segments may be views, and lack the memory in them: no event maps a view. All of
    them together are what was reserved nevertheless, which tells that none was at the start.
    """
    if sum(size for _, size, *_ in final) == int(_mapped_bytes(requests).sum()):
        return np.zeros(0, SPAN)
    held = Spans([(begin, begin + size, *what) for begin, size, *what in sorted(final)])
    is_segment = (requests["kind"] == Kind.SEGMENT_ALLOC) | (requests["kind"] == Kind.SEGMENT_FREE)
    for row in requests[is_segment][::-1].tolist():
        _, size, address, _, stream, kind, pool = row
        if kind == Kind.SEGMENT_FREE:
            owner = pools.get(pool, NO_POOL)
            held.put((address, address + size, stream, *owner, size == SMALL_SEGMENT))
        else:
            held.take(address, address + size)
    return _spans([(begin, end - begin, *what) for begin, end, *what in held])


# ---- blocks before the events


def _place_start_blocks(found: Records) -> tuple[Records, Records]:
    """Return the rank of each block in address order, and the START_BLOCK table in that order.

    The rank is the block's id. Raises TraceError if two blocks overlap.
    """
    order = np.argsort(found["address"], kind="stable")
    rank = np.zeros(len(found), np.int64)
    rank[order] = np.arange(len(found))
    table = found[order]
    table["id"] = np.arange(len(found))
    ends = table["address"] + table["requested_bytes"]
    overlaps = table["address"][1:] < ends[:-1]
    if overlaps.any():
        address = int(table["address"][1:][np.argmax(overlaps)])
        raise TraceError(f"two blocks that were live before recording overlap at {address:#x}")
    return rank, table


# ---- the rest


def _read_settings(raw: object) -> dict[str, Any]:
    """Keep scalars, and one level of named scalars (roundup_power2_divisions)."""
    if raw is None:
        return {}
    kept: dict[str, Any] = {}
    for key, value in list(entries.entry_of(raw, "'allocator_settings'").items())[:_MAX_SETTINGS]:
        if type(key) is str and type(value) in (str, int, float, bool):
            kept[key] = value
        elif type(key) is str and type(value) is dict:
            kept[key] = {
                name: number
                for name, number in list(value.items())[:_MAX_SETTINGS]
                if type(name) is str and type(number) in (int, float, bool)
            }
    return kept


_LONGEST_NAME: Final = 80
_MOST_NAMED: Final = 1 << 16  # the last ones of a device


class _Annotations:
    """What a program named on one device, in ns: the ends of its steps, and parts of it.

    The profiler brackets a step as "ProfilerStep#N"; without it, the optimizer's step is the end.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[int, str]] = []
        self._open: dict[str, list[int]] = {}
        self._named: deque[tuple[int, int, str]] = deque(maxlen=_MOST_NAMED)

    def read(self, stage: object, name: str, time: int) -> None:
        if stage == "START":
            self._open.setdefault(name, []).append(time)
        elif stage == "END":
            if begins := self._open.get(name):  # else it began before the recording
                self._named.append((begins.pop(), time, name))
            if name.startswith(STEP_ENDS):
                self._ends.append((time, name))

    @property
    def marks(self) -> list[tuple[int, str]]:
        steps = [mark for mark in self._ends if mark[1].startswith(STEP_ENDS[0])]
        return sorted(steps or self._ends)

    @property
    def named(self) -> tuple[tuple[int, int, str], ...]:
        left = [(at, _NO_END, name) for name, begins in self._open.items() for at in begins]
        found = [one for one in (*self._named, *left) if not one[2].startswith(STEP_ENDS[0])]
        return tuple(sorted(found, key=lambda one: (one[0], -one[1])))  # outer ones first


def _read_annotations(
    raw: object, budget: Visits
) -> tuple[dict[int, _Annotations], dict[int, Entry]]:
    """Return, by device, what the program named, and the note about pools."""
    notes: dict[int, Entry] = {}
    found: dict[int, _Annotations] = {}
    items = entries.list_of([] if raw is None else raw, "'external_annotations'")
    budget.spend(len(items))
    for index, item in enumerate(items):
        what = f"external annotation {index}"
        entry = entries.entry_of(item, what)
        name = entry.get("name")
        if is_note(entry):
            notes[entries.integer(entry, "device", what, low=0, high=_MAX_DEVICES)] = entry
        elif type(name) is str and entry.get("stage") in ("START", "END"):
            device = entries.integer(entry, "device", what, low=0, high=_MAX_DEVICES, default=0)
            time = entries.time_ns(entry, what)
            found.setdefault(device, _Annotations()).read(
                entry["stage"], name[:_LONGEST_NAME], time
            )
    return found, notes


def add_marks(trace: Trace, marks: list[tuple[int, str]]) -> Trace:
    """Insert a MARK for each (time in ns, name) before the first event that is later."""
    if marks and (trace.requests["time_ns"] > 0).any():
        times = np.array([time for time, _ in marks], np.uint64)
        latest = np.maximum.accumulate(trace.requests["time_ns"])
        where = np.searchsorted(latest, times, side="right")
        rows = np.zeros(len(marks), REQUEST)
        rows["id"] = np.arange(len(marks))
        rows["time_ns"] = times
        rows["kind"] = Kind.MARK
        trace.requests = np.insert(trace.requests, where, rows)
        trace.labels = tuple(name for _, name in marks)
    return trace
