"""Reads PyTorch memory snapshots: plain data in, one Trace per device out.

A snapshot holds the allocator's final state and the events that led to it. The blocks live before
the first event are derived: those that are live at the end and were never allocated, and those
freed without having been allocated. The segments at the start are the final ones with every segment
event undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.snapshots import entries
from gmlake.snapshots.entries import SEGMENT_KINDS, EventTable, Visits, is_row
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
    ALIGNMENT,
    LARGEST_SIZE,
    RANGE,
    REQUEST,
    SMALL_LIMIT,
    SMALL_SEGMENT,
    SPAN,
    START_BLOCK,
    Kind,
    Records,
    SpanKind,
)
from gmlake.trace.trace import Trace

if TYPE_CHECKING:
    from gmlake.snapshots.entries import Entry, Events

_LIVE_STATES: Final = {"active_allocated", "active_pending_free", "active_awaiting_free"}
_STATES: Final = {*_LIVE_STATES, "inactive"}
_MAX_DEVICES: Final = 1 << 16
_MAX_USED_DEVICES: Final = 1 << 10  # each costs a lake per policy, however little it did
_MAX_SETTINGS: Final = 256


Segment = tuple[int, int, int, int, int, bool]
"""(address, bytes, stream, owner and number of the pool, whether it is small)."""


@dataclass
class _State:
    """The file's data about one device, before events and final state are combined."""

    segments: list[Segment] = field(default_factory=list)
    blocks: list[tuple[int, int, int, bool]] = field(default_factory=list)
    events: Events = ()
    pool_note: Entry | None = None
    is_expandable: bool = False


def read_snapshot(data: object, budget: int = 1 << 40) -> list[Trace]:
    """Return one trace for each device with segments or events, by device; at least one.

    `data` is what torch.cuda.memory._snapshot() returns, or only its list of segments. `budget`
    bounds the entries visited. Raises TraceError.
    """
    top = data if type(data) is dict else {"segments": data}
    if "segments" not in top and "device_traces" not in top:
        reason = "not a memory snapshot: neither 'segments' nor 'device_traces' in it"
        raise TraceError(reason)
    if type(data) not in (dict, list, tuple):
        reason = f"not a memory snapshot: the file holds {entries.show(data)}"
        raise TraceError(reason)
    left = Visits(budget)
    states = _read_states(top, left)
    settings = _read_settings(top.get("allocator_settings"))
    annotations, pool_notes = _read_annotations(top.get("external_annotations"), left)
    for device, state in states.items():
        state.pool_note = pool_notes.get(device)
    traces = [
        _build(device, states[device], settings, annotations.get(device, []))
        for device in sorted(states)
    ]
    # Taking a snapshot leaves an event on every device, used or not.
    used = [trace for trace in traces if len(trace.requests) or len(trace.spans)]
    return used or [Trace(np.zeros(0, REQUEST), settings=settings)]


def _read_states(top: Entry, budget: Visits) -> dict[int, _State]:
    states: dict[int, _State] = {}
    segments = entries.list_of(top.get("segments", []), "'segments'")
    budget.spend(len(segments))
    for index, raw in enumerate(segments):
        what = f"segment {index}"
        entry = entries.entry_of(raw, what)
        device = entries.integer(entry, "device", what, low=0, high=_MAX_DEVICES, default=0)
        _read_segment(entry, what, states.setdefault(device, _State()), budget)
    traces = entries.list_of(top.get("device_traces", []), "'device_traces'")
    budget.spend(len(traces))
    for device, raw in enumerate(traces[:_MAX_DEVICES]):
        events: Events
        if isinstance(raw, EventTable):
            events = raw
        else:
            events = entries.list_of(raw, f"device_traces[{device}]")
        budget.spend(len(events))
        if events:
            states.setdefault(device, _State()).events = events
    if len(states) > _MAX_USED_DEVICES:
        reason = f"refused: memory of {len(states)} devices; at most {_MAX_USED_DEVICES} are read"
        raise TraceError(reason)
    return states


# ---- the final state


def _read_segment(entry: Entry, what: str, state: _State, budget: Visits) -> None:
    address, size = entries.extent(entry, ("address", "total_size"), what)
    owner, number = pool_id(entry, "segment_pool_id", what)
    is_small = entry.get("segment_type", "large") == "small"
    state.segments.append((address, size, entries.stream(entry, what), owner, number, is_small))
    state.is_expandable = state.is_expandable or entry.get("is_expandable") is True
    blocks = entries.list_of(entry.get("blocks", []), f"{what}: 'blocks'")
    budget.spend(len(blocks))
    position = address
    for index, raw in enumerate(blocks):
        block = _read_block(raw, f"{what}, block {index}", position, address + size)
        state.blocks.append(block)
        position = block[0] + block[1]


def _read_block(raw: object, what: str, position: int, end: int) -> tuple[int, int, int, bool]:
    entry = entries.entry_of(raw, what)
    state = entry.get("state")
    if type(state) is not str or state not in _STATES:
        reason = f"{what}: 'state' is {entries.show(state)}; known are {', '.join(sorted(_STATES))}"
        raise TraceError(reason)
    size = entries.size(entry, "size", what)
    # Files written before PyTorch 2.1 give no addresses: blocks lie one after another.
    address = entries.address(entry, "address", what) if "address" in entry else position
    if address < position or address + size > end:
        reason = f"{what} lies outside its segment or overlaps the block before it"
        raise TraceError(reason)
    is_used = state in _LIVE_STATES
    requested = size
    if "requested_size" in entry:
        requested = entries.size(entry, "requested_size", what)
    elif "history" in entry:  # of PyTorch 2.0
        real = latest_use(entry).get("real_size")
        requested = real if type(real) is int and 0 < real < size else size
    return address, size, requested if is_used else 0, is_used


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
    """The columns of the requests, and the allocation at each address, event by event.

    Allocations in the trace are numbered 0, 1, ... here, those live before it -1, -2, ...
    """

    def __init__(self) -> None:
        self.pools = PoolNumbers()
        self.requests: Records = np.zeros(0, _SIGNED_REQUEST)
        self.rows: list[tuple[int, int, int, int, int, int, int]] = []
        self.live: dict[int, int] = {}
        self.freed_at: dict[int, int] = {}
        self.before: list[StartBlock] = []
        self.allocations = 0
        self.has_mapped = False
        self.named: Records = np.zeros(0, np.uint64)  # addresses, where no dict has them

    def read_all(self, raw_events: Events, pool_note: Entry | None) -> None:
        if not isinstance(raw_events, EventTable) or not self._read_table(raw_events):
            for event, raw in enumerate(raw_events):
                self._read(event, raw)
            self.requests = np.array(self.rows, _SIGNED_REQUEST)
        noted = self.pools.of_note(pool_note, len(raw_events))
        if noted is not None:
            self._take_noted(raw_events, noted)

    def _take_noted(self, raw_events: Events, noted: Records) -> None:
        """Set the pool of each row whose event does not name it."""
        noted = noted[entries.are_rows(raw_events)]
        unnamed = self.requests["pool"] == UNNAMED
        self.requests["pool"][unnamed] = noted[unnamed]

    def _read_table(self, table: EventTable) -> bool:
        """Read all events by columns; does nothing and returns False if any is unusual."""
        of_shared = _kinds_of(table)
        if of_shared is None:
            return False
        kind = of_shared[table.rows["id"]]
        is_chosen = kind != _NO_ROW
        requests = table.rows.copy() if is_chosen.all() else table.rows[is_chosen]
        requests["kind"] = kind[is_chosen]
        requests["id"] = requests["pool"] = 0
        if not _has_usual_numbers(requests):
            return False
        requests["time_ns"] *= np.uint64(1000)
        requests = requests.view(_SIGNED_REQUEST)
        try:
            pools = self._pools_of_shared(table, of_shared)
        except TraceError:
            return False
        of_pools = np.isin(requests["kind"], OF_POOLS)
        requests["pool"][of_pools] = pools[table.rows["id"][is_chosen]][of_pools]
        for row, number in zip(
            np.flatnonzero(requests["kind"] == Kind.OOM).tolist(),
            table.rows["id"][kind == Kind.OOM].tolist(),
            strict=True,
        ):
            try:
                requests[row] = self._refusal(row, table.shared[number])
            except TraceError:
                return False
        found = _match_blocks(requests)
        if found is None:
            return False
        before, self.named = found
        for _, size, address, _, stream, _, _ in requests.view(REQUEST)[before].tolist():
            self.before.append(StartBlock(address, size, stream, 0))
        self.has_mapped = any(
            entry["action"] in _MAPPED
            for entry, kind in zip(table.shared, of_shared.tolist(), strict=True)
            if kind != _NO_ROW
        )
        self.requests = requests
        return True

    def _pools_of_shared(self, table: EventTable, of_shared: Records) -> Records:
        """Return for each shared entry the pool that its events name."""
        pools = np.zeros(len(of_shared), np.uint32)
        for number in np.flatnonzero(np.isin(of_shared, OF_POOLS)).tolist():
            pools[number] = self.pools.of_event(table.shared[number], "the event")
        return pools

    def has_named(self, addresses: list[int]) -> list[bool]:
        """Return which addresses occur in events of blocks."""
        if not len(self.named):
            return [address in self.live or address in self.freed_at for address in addresses]
        wanted = np.array(addresses, np.uint64)
        place = np.minimum(np.searchsorted(self.named, wanted), len(self.named) - 1)
        named: list[bool] = (self.named[place] == wanted).tolist()
        return named

    def _read(self, event: int, raw: object) -> None:
        entry = entries.entry_of(raw, "the event", event)
        action = entry.get("action")
        if type(action) is not str:
            reason = f"the event has no 'action' that is a text but {entries.show(action)}"
            raise TraceError(reason, event=event)
        if not is_row(entry):
            return
        if action == "oom":
            self.rows.append(self._refusal(event, entry))
            return
        stream = entries.stream(entry, action, event)
        time = entries.time_ns(entry, action, event)
        address, size = entries.extent(entry, ("addr", "size"), action, event)
        if action in SEGMENT_KINDS:
            self.has_mapped = self.has_mapped or action in _MAPPED
            pool = self.pools.of_event(entry, action, event)
            self.rows.append((0, size, address, time, stream, SEGMENT_KINDS[action], pool))
            return
        number, kind = self._match(event, action, address, size, stream)
        pool = self.pools.of_event(entry, action, event) if kind == Kind.ALLOC else 0
        self.rows.append((number, size, address, time, stream, kind, pool))

    def _refusal(self, event: int, entry: Entry) -> tuple[int, int, int, int, int, int, int]:
        stream = entries.stream(entry, "oom", event)
        time = entries.time_ns(entry, "oom", event)
        # The request was not served, so any size is possible.
        size = entries.address(entry, "size", "oom", event)
        free = entries.integer(
            entry, "device_free", "oom", low=0, high=1 << 64, event=event, default=0
        )
        return 0, size, free, time, stream, Kind.OOM, self.pools.of_event(entry, "oom", event)

    def _match(
        self, event: int, action: str, address: int, size: int, stream: int
    ) -> tuple[int, Kind]:
        """Return the allocation that the event is about, and its kind."""
        if action == "alloc":
            if address in self.live:
                reason = f"allocates {address:#x}, which is live already"
                raise TraceError(reason, event=event)
            return self._born(address), Kind.ALLOC
        if action == "free_completed":
            number = self._owner(event, address, size, stream)
            del self.live[address]
            self.freed_at[address] = event
            return number, Kind.FREE
        if action == "free_requested":
            return self._owner(event, address, size, stream), Kind.FREE_REQUESTED
        reason = f"the action {entries.show(action)} is not known"
        raise TraceError(reason, event=event)

    def _born(self, address: int) -> int:
        number = self.live[address] = self.allocations
        self.allocations += 1
        self.freed_at.pop(address, None)
        return number

    def _owner(self, event: int, address: int, size: int, stream: int) -> int:
        if address not in self.live:
            if address in self.freed_at:
                reason = f"frees {address:#x}, which event {self.freed_at[address]} freed already"
                raise TraceError(reason, event=event)
            self.add_before(address, size, stream)
        return self.live[address]

    def add_before(self, address: int, size: int, stream: int, block_bytes: int = 0) -> None:
        self.before.append(StartBlock(address, size, stream, block_bytes))
        self.live[address] = -len(self.before)


def _kinds_of(table: EventTable) -> Records | None:
    """Return the kind of the rows for each shared entry; None if that is unclear."""
    kinds = np.full(len(table.shared), _NO_ROW, np.uint32)
    for number, (entry, is_whole) in enumerate(
        zip(table.shared, table.is_whole.tolist(), strict=True)
    ):
        if type(entry) is not dict or type(entry.get("action")) is not str:
            return None
        if is_row(entry):
            action = entry["action"]
            if is_whole != (action == "oom") or action not in _KINDS:
                return None
            kinds[number] = _KINDS[action]
    return kinds


def _has_usual_numbers(requests: Records) -> bool:
    sizes = requests["size_bytes"]
    highest = np.uint64(entries.ADDRESS_LIMIT - 1) - sizes
    is_usual = (sizes <= LARGEST_SIZE) & (requests["address"] <= highest)
    return bool((is_usual & (requests["time_ns"] < entries.TIME_LIMIT)).all())


def _match_blocks(requests: Records) -> tuple[Records, Records] | None:
    """Find the allocation that each event of a block is about, by its address, and set its id.

    Allocations are numbered 0, 1, ..., blocks from before the events -1, -2, ..., in the order in
    which events name them. Return the rows that first name each of the latter, and all addresses,
    sorted. None, with nothing set, if an event contradicts those before it.
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
    if not (is_first | (has_ended == begins)).all():
        return None
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
    device: int, state: _State, settings: dict[str, Any], annotations: list[tuple[int, str]]
) -> Trace:
    state.segments.sort()
    state.blocks.sort()
    events = _Events()
    events.read_all(state.events, state.pool_note)
    spans = _spans(state.segments)
    ranges = np.array([(*each[:3], 0, 0, 0, each[3]) for each in state.blocks], RANGE)
    _add_survivors(events, state)
    requests = events.requests
    is_expandable = state.is_expandable or events.has_mapped
    numbers = [events.pools.number(segment[3:5]) for segment in state.segments]
    undo = _undo_mapping if events.has_mapped else _undo_segment_events
    start_segments = undo(state.segments, requests, dict(enumerate(events.pools.pools, 1)))
    name_pools(requests, spans, np.array(numbers, np.uint32), is_expandable=is_expandable)
    order, start_blocks = _place_start_blocks(events.before, settings)
    requests["id"] = _renumber(requests["id"], order)
    trace = Trace(
        requests=requests.view(REQUEST),
        start_segments=start_segments,
        start_blocks=start_blocks,
        spans=spans,
        ranges=ranges,
        device=device,
        settings=settings,
        pools=events.pools.pools,
        is_expandable=is_expandable,
    )
    if not trace.is_expandable:
        _deduce_block_sizes(trace)
    return add_marks(trace, annotations)


_SIGNED_REQUEST = np.dtype(
    [(name, "<i8" if name == "id" else REQUEST[name]) for name in REQUEST.names or ()]
)


def _renumber(ids: Records, order: Records) -> Records:
    """Map -1, -2, ... to the ranks of the start blocks and 0, 1, ... to the numbers after."""
    result = ids + len(order)
    is_before = ids < 0
    result[is_before] = order[-ids[is_before] - 1]
    return result


def _add_survivors(events: _Events, state: _State) -> None:
    """Blocks that are live at the end and appear in no event were live before recording.

    One whose address was freed in the trace was allocated again after recording stopped.
    """
    starts = np.array([segment[0] for segment in state.segments], np.uint64)
    has_named = events.has_named([block[0] for block in state.blocks])
    for (address, size, requested, is_used), is_named in zip(state.blocks, has_named, strict=True):
        if is_used and not is_named:
            index = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
            events.add_before(address, requested, state.segments[index][2], size)


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
#
# A snapshot gives the requested size of such a block, not what the allocator held for it. The
# large pool leaves up to 1 MiB that it did not split off at the end of a block; two facts show it:
# no free range of the large pool is ever that small, and an allocation takes the beginning of a
# free range.

_MIB = 1 << 20
_LARGEST_INTERVAL = 15


@dataclass(frozen=True)
class StartBlock:
    """A block as found; block_bytes is 0 if the file does not tell it."""

    address: int
    requested_bytes: int
    stream: int
    block_bytes: int


def _place_start_blocks(
    found: list[StartBlock], settings: dict[str, Any]
) -> tuple[Records, Records]:
    """Return the rank of each block in address order, and the START_BLOCK table in that order.

    The rank is the block's id. Raises TraceError if two blocks overlap.
    """
    order = sorted(range(len(found)), key=lambda index: found[index].address)
    rank = np.zeros(len(found), np.int64)
    rank[order] = np.arange(len(found))
    table = np.zeros(len(found), START_BLOCK)
    end = 0
    for number, index in enumerate(order):
        block = found[index]
        if block.address < end:
            reason = f"two blocks that were live before recording overlap at {block.address:#x}"
            raise TraceError(reason)
        held = block.block_bytes or round_size(block.requested_bytes, settings)
        end = block.address + block.requested_bytes
        table[number] = (number, block.address, held, block.requested_bytes, block.stream)
    return rank, table


def round_size(size_bytes: int, settings: dict[str, Any]) -> int:
    """Round as PyTorch does: to 512, or to a fraction of a power of two if so configured."""
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, dict) and size_bytes > ALIGNMENT:
        interval = min(max(size_bytes // _MIB, 1).bit_length() - 1, _LARGEST_INTERVAL)
        count = divisions.get(str(1 << interval), 0)
        if type(count) is int and count > 1 and size_bytes > ALIGNMENT * count:
            floor = 1 << (size_bytes.bit_length() - 1)
            step = floor // count
            if floor != size_bytes and step > 0:
                return -(-(size_bytes) // step) * step
    return max(ALIGNMENT, -(-size_bytes // ALIGNMENT) * ALIGNMENT)


def _deduce_block_sizes(trace: Trace) -> None:
    """Enlarge start blocks of the large pool by the slack that the events reveal."""
    blocks, segments = trace.start_blocks, trace.start_segments
    if not len(blocks) or not len(segments):
        return
    ends = blocks["address"] + blocks["block_bytes"]
    base = np.searchsorted(segments["address"], blocks["address"], side="right").astype(int) - 1
    inside = base >= 0
    limit = (segments["address"] + segments["size_bytes"])[np.maximum(base, 0)]
    following = np.append(blocks["address"][1:], np.uint64(2**64 - 1))
    limit = np.minimum(limit, following)
    gap = np.where(limit > ends, limit - ends, 0)
    too_long = inside & (ends > limit) & (limit > blocks["address"])
    blocks["block_bytes"] -= np.where(too_long, ends - limit, 0).astype(np.uint64)
    is_large = inside & ~segments["is_small"][np.maximum(base, 0)]
    first = _first_arrivals(trace, ends, gap)
    slack = np.where(gap <= SMALL_LIMIT, gap, first)
    blocks["block_bytes"] += np.where(is_large, slack, 0).astype(np.uint64)


def _first_arrivals(trace: Trace, ends: Records, gap: Records) -> Records:
    """For each block, the distance to the first allocation in the gap after it, if that is slack.

    0 if nothing was allocated there before the block itself was freed, or if the distance is too
    large to be slack.
    """
    kind, ids = trace.requests["kind"], trace.requests["id"]
    allocs = np.flatnonzero(kind == Kind.ALLOC)
    frees = np.flatnonzero((kind == Kind.FREE) & (ids < len(ends)))
    freed_at = np.full(len(ends), len(kind), np.int64)
    freed_at[ids[frees]] = frees
    addresses = trace.requests["address"][allocs]
    before = np.searchsorted(ends, addresses, side="right").astype(int) - 1
    block = np.maximum(before, 0)
    distance = addresses - ends[block]
    arrives = (before >= 0) & (distance < gap[block]) & (allocs < freed_at[block])
    owners, first = np.unique(block[arrives], return_index=True)
    slack = np.zeros(len(ends), np.uint64)
    slack[owners] = distance[arrives][first]
    slack[slack > SMALL_LIMIT] = 0
    return slack


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


def _read_annotations(
    raw: object, budget: Visits
) -> tuple[dict[int, list[tuple[int, str]]], dict[int, Entry]]:
    """Return, by device, the ends of steps (time in ns and name) and the note about pools.

    The profiler brackets a step as "ProfilerStep#N"; without it, the optimizer's step is the end.
    """
    notes: dict[int, Entry] = {}
    if raw is None:
        return {}, notes
    items = entries.list_of(raw, "'external_annotations'")
    budget.spend(len(items))
    found: dict[int, list[tuple[int, str]]] = {}
    for index, item in enumerate(items):
        what = f"external annotation {index}"
        entry = entries.entry_of(item, what)
        name = entry.get("name")
        if is_note(entry):
            notes[entries.integer(entry, "device", what, low=0, high=_MAX_DEVICES)] = entry
        if entry.get("stage") != "END" or type(name) is not str:
            continue
        if name.startswith(("ProfilerStep#", "Optimizer.step#")):
            device = entries.integer(entry, "device", what, low=0, high=_MAX_DEVICES, default=0)
            found.setdefault(device, []).append((entries.time_ns(entry, what), name[:80]))
    for device, marks in found.items():
        steps = [mark for mark in marks if mark[1].startswith("ProfilerStep#")]
        found[device] = sorted(steps or marks)
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
