"""One recorded run: its events, and the memory of the allocator before and after them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.errors import TraceError
from gmlake.trace.layout import (
    LARGEST_SIZE,
    RANGE,
    REQUEST,
    SPAN,
    START_BLOCK,
    Kind,
    Records,
    rounded,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

SLICE_EVENTS: Final = 1 << 16
"""Events between two reports of progress, and between two chances to interrupt."""

DEVICE_BYTES: Final = "gmlake_device_bytes"
"""A setting in recordings of gmlake, with the device behind a dot: how much memory it has."""

DEVICE_NAME: Final = "gmlake_device_name"
"""Likewise: what it is called, which says so where it is no GPU."""

REFUSAL: Final = "gmlake_refusal"
"""Likewise: the account of the last refusal, see gmlake.snapshots.situations, as named numbers."""

REFUSED_BY: Final = "gmlake_refused_by"
"""Likewise: the policy that refused; not there: PyTorch's own allocator did."""

REGION_NAME: Final = "gmlake_region_name"
"""In recordings of gmlake, with the number of a region's lake behind a dot."""

OTHER_BYTES: Final = "gmlake_other_bytes"
"""Likewise: what neither PyTorch nor gmlake held of the device, and was not free."""

STEP_ENDS: Final = ("ProfilerStep#", "Optimizer.step#")
"""What the label of a mark at the end of a step begins with, as PyTorch writes it."""

_BEFORE = -1
_NEVER = -2
_NO_STREAM = 2**64 - 1
_OF_POOLS: Final = (Kind.ALLOC, Kind.OOM, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, Kind.TRIM)


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 62


def _empty(dtype: np.dtype[Any]) -> Records:
    return np.zeros(0, dtype)


@dataclass(eq=False)
class Trace:
    """The memory events of one device, in the order they happened.

    Only `requests` is required. `check()` verifies that the fields agree.

    requests: the events, dtype `REQUEST`, shape (events,). Ids are dense: those of the start
        blocks and of the ALLOC events together are 0, 1, ... in any order, each used once.
    start_segments, start_blocks: memory of PyTorch before the first event, in address order.
    spans, ranges: its memory after the last event, in address order.
    device: ordinal of the device.
    settings: the allocator's settings as recorded, by PyTorch's names.
    labels: names of the marks.
    named: what the program named by record_function(): begin and end in ns, and the name.
    pools: PyTorch's ids of the private pools (CUDA graphs, MemPool) that its events name.
    is_expandable: PyTorch ran with expandable segments.
    name: its name in reports; the file's name if it was loaded.
    """

    requests: Records
    start_segments: Records = field(default_factory=lambda: _empty(SPAN))
    start_blocks: Records = field(default_factory=lambda: _empty(START_BLOCK))
    spans: Records = field(default_factory=lambda: _empty(SPAN))
    ranges: Records = field(default_factory=lambda: _empty(RANGE))
    device: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    named: tuple[tuple[int, int, str], ...] = ()
    pools: tuple[tuple[int, int], ...] = ()
    is_expandable: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        """Convert every array to its exact type; ValueError if that is impossible."""
        self.requests = _records(self.requests, REQUEST, "requests")
        self.start_segments = _records(self.start_segments, SPAN, "start_segments")
        self.start_blocks = _records(self.start_blocks, START_BLOCK, "start_blocks")
        self.spans = _records(self.spans, SPAN, "spans")
        self.ranges = _records(self.ranges, RANGE, "ranges")
        self.labels = tuple(self.labels)
        self.pools = tuple(self.pools)

    def __repr__(self) -> str:
        return (
            f"<gmlake.Trace {self.name!r}: {len(self.requests)} events, "
            f"{self.allocations} allocations, {len(self.start_blocks)} live before>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        plain = ("device", "settings", "labels", "pools", "is_expandable")
        tables = ("requests", "start_segments", "start_blocks", "spans", "ranges")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in tables
        )

    __hash__ = None  # type: ignore[assignment]  # arrays can be changed in place

    @property
    def allocations(self) -> int:
        """The number of allocations."""
        return int(np.count_nonzero(self.requests["kind"] == Kind.ALLOC))

    @property
    def id_count(self) -> int:
        """The number of ids in use: start blocks and allocations."""
        return len(self.start_blocks) + self.allocations

    def label(self, number: int) -> str:
        """Return the label of a mark."""
        return self.labels[number] if number < len(self.labels) else f"mark {number}"

    def numbers_of(self, segments: Records) -> Records:
        """Return for each segment the number of its private pool; 0: none."""
        numbers = {pool: number for number, pool in enumerate(self.pools, 1)}
        ids = zip(segments["pool_owner"].tolist(), segments["pool_number"].tolist(), strict=True)
        return np.array([numbers.get(pool, 0) for pool in ids], np.uint32)

    @property
    def start_pools(self) -> Records:
        """The number of the private pool of each start block; 0: none."""
        return self.pools_before(self.start_blocks["address"])

    def pools_before(self, addresses: Records) -> Records:
        """Return the number of the private pool at each address before the first event; 0: none.

        By the segments; recordings of gmlake have only those at the end.
        """
        segments = self.start_segments if len(self.start_segments) else self.spans
        numbers = np.append(self.numbers_of(segments), np.uint32(0))
        place = np.searchsorted(segments["address"], addresses, side="right") - 1
        ends = np.append(segments["address"] + segments["size_bytes"], np.uint64(0))
        found: Records = np.where(addresses < ends[place], numbers[place], np.uint32(0))
        return found

    @property
    def device_name(self) -> str:
        """What the device is called; "" if not recorded."""
        name = self.settings.get(f"{DEVICE_NAME}.{self.device}")
        return name if isinstance(name, str) else ""

    @property
    def device_bytes(self) -> int:
        """The memory of the device; 0 if not recorded."""
        size = self.settings.get(f"{DEVICE_BYTES}.{self.device}", 0)
        return size if _is_size(size) else 0

    @property
    def refusal(self) -> dict[str, int]:
        """The account of gmlake's last refusal, if recorded: numbers by name; else {}."""
        numbers = self.settings.get(f"{REFUSAL}.{self.device}")
        if not isinstance(numbers, dict):
            return {}
        return {name: number for name, number in numbers.items() if _is_size(number)}

    @property
    def asleep_bytes(self) -> int:
        """The memory of tensors in regions that slept then: live in the trace, and not held."""
        return self.refusal.get("asleep_bytes", 0)

    @property
    def refused_by(self) -> str:
        """The policy of gmlake that it is of, "" if there is none."""
        policy = self.settings.get(f"{REFUSED_BY}.{self.device}")
        return policy if isinstance(policy, str) else ""

    @property
    def told_others_bytes(self) -> int | None:
        """The bytes of the device held by others at the end, if recorded."""
        size = self.settings.get(f"{OTHER_BYTES}.{self.device}")
        return size if isinstance(size, int) and size >= 0 else None

    @property
    def peak_live_bytes(self) -> int:
        """The peak of live bytes, each block rounded up to 512, start blocks included."""
        return int(self._live_bytes(self._sizes).max())

    @property
    def pooled_live_bytes(self) -> int:
        """The bytes of private pools among those at the peak of live bytes."""
        if not self.pools:
            return 0
        sizes = self._sizes
        at_peak = np.argmax(self._live_bytes(sizes))
        return int(self._live_bytes(np.where(self.block_pools > 0, sizes, 0))[at_peak])

    @property
    def block_pools(self) -> NDArray[np.uint32]:
        """The number of the private pool of each id; 0: none."""
        allocs = self.requests[self.requests["kind"] == Kind.ALLOC]
        pools = np.zeros(max(self.id_count, 1), np.uint32)
        pools[self.start_blocks["id"]] = self.start_pools
        pools[allocs["id"]] = allocs["pool"]
        return pools

    @property
    def event_pools(self) -> NDArray[np.uint32]:
        """The number of the private pool of each event, frees included; 0: none."""
        kind = self.requests["kind"]
        is_free = (kind == Kind.FREE) | (kind == Kind.FREE_REQUESTED)
        ids = np.where(is_free, self.requests["id"], 0)
        pools: NDArray[np.uint32] = np.where(is_free, self.block_pools[ids], self.requests["pool"])
        return pools

    @property
    def _sizes(self) -> NDArray[np.int64]:
        """The bytes of each id, rounded up."""
        allocs = self.requests[self.requests["kind"] == Kind.ALLOC]
        sizes = np.zeros(max(self.id_count, 1), np.int64)
        sizes[self.start_blocks["id"]] = rounded(self.start_blocks["requested_bytes"])
        sizes[allocs["id"]] = rounded(allocs["size_bytes"])
        return sizes

    def _live_bytes(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the live bytes before the first event and after each, given those of each id."""
        kind = self.requests["kind"]
        is_alloc, is_free = kind == Kind.ALLOC, kind == Kind.FREE
        change = np.zeros(len(kind) + 1, np.int64)
        change[0] = sizes[self.start_blocks["id"]].sum()
        change[1:][is_alloc] = sizes[self.requests["id"][is_alloc]]
        change[1:][is_free] = -sizes[self.requests["id"][is_free]]
        live: NDArray[np.int64] = np.cumsum(change)
        return live

    def replay_requests(self) -> Records:
        """Return the events as a policy sees them.

        The start blocks are allocated first, in address order, and TRIM events mark where PyTorch
        returned segments (see `requests_with_trims`).
        """
        head = np.zeros(len(self.start_blocks), REQUEST)
        start = self.start_blocks[np.argsort(self.start_blocks["address"], kind="stable")]
        for column, source in (
            ("id", "id"),
            ("size_bytes", "requested_bytes"),
            ("address", "address"),
            ("stream", "stream"),
        ):
            head[column] = start[source]
        head["kind"] = Kind.ALLOC
        if self.pools:
            head["pool"] = self.start_pools[np.argsort(self.start_blocks["address"], kind="stable")]
        return np.concatenate([head, self.requests_with_trims()])

    def requests_with_trims(self) -> Records:
        """Return the events with TRIMs before each run of SEGMENT_FREE.

        PyTorch returns segments only in torch.cuda.empty_cache() and when it runs out of memory;
        either way all idle memory is returned, and that of private pools without uses.
        """
        first, pools = trims_of(self.requests)
        trims = np.zeros(len(first), REQUEST)
        trims["kind"] = Kind.TRIM
        trims["time_ns"] = self.requests["time_ns"][first]
        trims["pool"] = pools
        return np.insert(self.requests, first, trims)

    def check(self) -> None:
        """Raise TraceError, naming the event, unless every event makes sense after the others."""
        _check_fields(self.requests, len(self.pools))
        _check_ids(self.requests, self.start_blocks, self.id_count)
        _check_labels(self.requests, self.labels)

    def save(self, path: str | Path) -> None:
        """Write the trace in gmlake's own compact format; see gmlake.trace.binary.

        Raises OSError, and TraceError if the trace contradicts itself (see `check`).
        """
        from gmlake.trace.binary import encode

        self.check()
        Path(path).write_bytes(encode(self))


def trims_of(requests: Records) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the rows where runs of SEGMENT_FREE begin, once for each pool in the run, and it."""
    is_free = requests["kind"] == Kind.SEGMENT_FREE
    begins = is_free & ~np.concatenate([[False], is_free[:-1]])
    first = np.flatnonzero(begins)
    if not requests["pool"][is_free].any():
        return first, np.zeros(len(first), np.uint32)
    of_run = (np.cumsum(begins) - 1)[is_free]
    pairs = np.unique(np.stack([of_run, requests["pool"][is_free]], axis=1), axis=0)
    return first[pairs[:, 0]], pairs[:, 1].astype(np.uint32)


def slices(requests: Records) -> Iterator[Records]:
    """Yield requests in parts short enough to report progress in between."""
    for first in range(0, len(requests), SLICE_EVENTS):
        yield requests[first : first + SLICE_EVENTS]


def _records(array: ArrayLike, dtype: np.dtype[Any], name: str) -> Records:
    result: Records = np.ascontiguousarray(array)
    if result.dtype != dtype or result.ndim != 1:
        raise ValueError(f"{name} must be a one-dimensional numpy array of dtype {dtype}")
    return result


def _fail_at(bad: Records, reason: str) -> None:
    """Raise for the first true entry of a mask over the events."""
    if bad.any():
        raise TraceError(reason, event=int(np.argmax(bad)))


def _check_fields(requests: Records, pool_count: int) -> None:
    kind = requests["kind"]
    _fail_at((kind < Kind.ALLOC) | (kind > Kind.MARK), "the kind of the event is not known")
    has_pool = np.isin(kind, _OF_POOLS)
    _fail_at(~has_pool & (requests["pool"] != 0), "an event of its kind has no private pool")
    _fail_at(requests["pool"] > pool_count, "its private pool is not in the trace's list")
    _fail_at(
        (requests["size_bytes"] > LARGEST_SIZE) & (kind != Kind.OOM),
        "a size above 2^48 bytes",
    )
    no_stream = requests["stream"] == _NO_STREAM
    _fail_at(no_stream & (kind == Kind.ALLOC), "2^64 - 1 (or -1) is not a stream handle")


def _check_ids(requests: Records, start_blocks: Records, id_count: int) -> None:
    kind, ids = requests["kind"], requests["id"]
    has_id = (kind == Kind.ALLOC) | (kind == Kind.FREE) | (kind == Kind.FREE_REQUESTED)
    _fail_at(has_id & (ids >= id_count), f"an id at or above {id_count}, the number of allocations")
    is_wrong = (start_blocks["id"] >= id_count) | (start_blocks["requested_bytes"] > LARGEST_SIZE)
    if is_wrong.any():
        raise TraceError("a block that was live before recording has an id or a size out of range")
    if (start_blocks["stream"] == _NO_STREAM).any():
        raise TraceError("a block that was live before recording has the stream 2^64 - 1 (or -1)")
    born = np.full(id_count, _NEVER, np.int64)
    born[start_blocks["id"]] = _BEFORE
    if np.count_nonzero(born == _BEFORE) != len(start_blocks):
        raise TraceError("two blocks that were live before recording have the same id")
    allocs, frees = np.flatnonzero(kind == Kind.ALLOC), np.flatnonzero(kind == Kind.FREE)
    _fail_at_repeated(allocs, ids, "an allocation with an id that was allocated before")
    _fail_at_index(allocs, born[ids[allocs]] == _BEFORE, "an allocation of an id live before")
    born[ids[allocs]] = allocs
    _fail_at_index(frees, born[ids[frees]] > frees, "a free of an id that is not allocated yet")
    _fail_at_index(frees, born[ids[frees]] == _NEVER, "a free of an id that is never allocated")
    _fail_at_repeated(frees, ids, "a free of an id that was freed before")
    wishes = np.flatnonzero(kind == Kind.FREE_REQUESTED)
    _fail_at_index(wishes, born[ids[wishes]] > wishes, "a free of an id that is not allocated yet")


def _fail_at_index(events: Records, bad: Records, reason: str) -> None:
    if bad.any():
        raise TraceError(reason, event=int(events[np.argmax(bad)]))


def _fail_at_repeated(events: Records, ids: Records, reason: str) -> None:
    """Raise for the first of `events` whose id an earlier one of them has."""
    if np.bincount(ids[events].astype(np.int64)).max(initial=0) > 1:
        _, first = np.unique(ids[events], return_index=True)
        repeated = np.ones(len(events), np.bool_)
        repeated[first] = False
        _fail_at_index(events, repeated, reason)


def _check_labels(requests: Records, labels: tuple[str, ...]) -> None:
    if labels:
        is_mark = requests["kind"] == Kind.MARK
        _fail_at(is_mark & (requests["id"] >= len(labels)), "a mark names an absent label")
