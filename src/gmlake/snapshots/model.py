"""Snapshots of one device: one moment and the events before it, as arrays, not lists of objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.figures import CATEGORIES
from gmlake.snapshots.peaks import Lives, Peak, lives_of, peak_of
from gmlake.trace.layout import Kind, Records, SpanKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.trace.trace import Trace

UNKNOWN: Final = CATEGORIES.index("unknown")


PIECE: Final = np.dtype(
    [
        ("address", "<u8"),
        ("base_address", "<u8"),
        ("size_bytes", "<u8"),
        ("span", "<u4"),
    ]
)
"""Where bytes of a view lie in the base range."""


@dataclass(eq=False)
class DeviceSnapshot:
    """One device, or one lake.

    trace: the last events, in the order they happened, and the blocks live before them.
    event_sites: the site of each event. start_sites: of each of trace.start_blocks.
    categories: an index into CATEGORIES for each id of the trace. is_sure: which of them are
    sure if they were inferred; None if they were recorded.
    pieces: where the bytes of views lie at the end, dtype PIECE.
    counters: as Lake.stats() returns them; empty if the file has none.
    stream_pairs: as Lake.stream_pairs() returns them.
    has_reserved_events: the trace has the memory taken from and returned to the driver.
    told_categories: like categories, those that the program named itself, if it did.
    """

    device: int
    trace: Trace
    event_sites: NDArray[np.uint64]
    start_sites: NDArray[np.uint64]
    categories: NDArray[np.int8]
    pieces: Records = field(default_factory=lambda: np.zeros(0, PIECE))
    counters: dict[str, Any] = field(default_factory=dict)
    stream_pairs: list[dict[str, int]] = field(default_factory=list)
    has_reserved_events: bool = False
    is_sure: NDArray[np.bool_] | None = None
    told_categories: NDArray[np.int8] | None = None

    def __repr__(self) -> str:
        return (
            f"<gmlake.DeviceSnapshot {self.device}: {len(self.blocks)} blocks, "
            f"{self.live_bytes} of {self.reserved_bytes} bytes live, {len(self.events)} events>"
        )

    @property
    def spans(self) -> Records:
        """The memory held at the end, dtype SPAN, by address."""
        return self.trace.spans

    @property
    def ranges(self) -> Records:
        """The parts of `spans`, dtype RANGE, by address."""
        return self.trace.ranges

    @property
    def events(self) -> Records:
        """The last events, dtype gmlake.trace.REQUEST; `id` numbers the allocation."""
        return self.trace.requests

    @property
    def blocks(self) -> Records:
        """The live blocks, dtype RANGE."""
        return self.ranges[self.ranges["is_used"] & (self.ranges["requested_bytes"] > 0)]

    @property
    def free_extents(self) -> Records:
        """The free memory held, dtype RANGE, where its bytes lie."""
        return self.ranges[~self.ranges["is_used"] & self._holds_memory]

    @property
    def views(self) -> Records:
        """The stitched views, dtype SPAN."""
        found: Records = self.spans[self.spans["kind"] == SpanKind.VIEW]
        return found

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams that hold memory or made requests, in ascending order."""
        is_alloc = self.events["kind"] == Kind.ALLOC
        found = [self.spans["stream"], self.trace.start_blocks["stream"]]
        return tuple(np.unique(np.concatenate([*found, self.events["stream"][is_alloc]])).tolist())

    @property
    def marks(self) -> tuple[tuple[int, str], ...]:
        """The marks among the events: (time in ns, label)."""
        rows = self.events[self.events["kind"] == Kind.MARK]
        labels = self.trace.labels
        return tuple(
            (time, labels[number] if number < len(labels) else f"mark {number}")
            for number, time in zip(rows["id"].tolist(), rows["time_ns"].tolist(), strict=True)
        )

    @property
    def refusals(self) -> Records:
        """The requests that were refused, among the events."""
        found: Records = self.events[self.events["kind"] == Kind.OOM]
        return found

    @property
    def live_bytes(self) -> int:
        """The bytes of live blocks, each rounded up to 512."""
        counted = self.counters.get("live_bytes")
        return int(self.blocks["size_bytes"].sum()) if counted is None else int(counted)

    @property
    def reserved_bytes(self) -> int:
        """The bytes held from the driver."""
        counted = self.counters.get("reserved_bytes")
        if counted is not None:
            return int(counted)
        is_real = self.spans["kind"] != SpanKind.VIEW
        return int(self.spans["size_bytes"][is_real].sum())

    @property
    def free_bytes(self) -> int:
        """The free bytes held."""
        return int(self.free_extents["size_bytes"].sum())

    @property
    def largest_free_bytes(self) -> int:
        """The largest request that the memory held can serve.

        The largest free extent if a file does not have it.
        """
        counted = self.counted_largest_bytes
        return int(self.free_extents["size_bytes"].max(initial=0)) if counted is None else counted

    @property
    def counted_largest_bytes(self) -> int | None:
        """The same, as the allocator said it; None if a file does not have it."""
        counted = self.counters.get("largest_free_bytes")
        return None if counted is None else int(counted)

    @property
    def fragmentation(self) -> float:
        """1 - largest obtainable / free, from 0 to 1; 0 if nothing is free."""
        return fragmentation_of(self.free_bytes, self.largest_free_bytes)

    @cached_property
    def lives(self) -> Lives:
        """Every block of the events, by its id."""
        return lives_of(self.trace, self.event_sites, self.start_sites)

    @cached_property
    def peak(self) -> Peak:
        """The highest point of the events, and the blocks live there."""
        return peak_of(self.lives, self.trace, int(self.counters.get("peak_live_bytes", 0)))

    @property
    def _holds_memory(self) -> NDArray[np.bool_]:
        kinds = self.spans["kind"][self.ranges["span"]]
        result: NDArray[np.bool_] = kinds != SpanKind.VIEW
        return result


def fragmentation_of(free_bytes: int, largest_bytes: int) -> float:
    """Return the share of free memory that one request cannot get; 0 if nothing is free."""
    return 1.0 - min(largest_bytes, free_bytes) / free_bytes if free_bytes else 0.0


def in_order(devices: Iterable[DeviceSnapshot]) -> list[DeviceSnapshot]:
    """Return the devices: that of the first refusal first, and the others by their peaks."""

    def place(seen: DeviceSnapshot) -> tuple[int, int, int]:
        times = seen.refusals["time_ns"]
        return 0 if len(times) else 1, int(times[0]) if len(times) else 0, -seen.peak.live_bytes

    return sorted(devices, key=place)


def name_ranges(seen: DeviceSnapshot) -> None:
    """Give live blocks the site and category of the event that made them, if there is one."""
    lives = seen.lives
    alive = np.flatnonzero((lives.died == len(seen.events)) & (lives.size_bytes > 0))
    if not len(alive):
        return
    alive = alive[np.argsort(lives.address[alive], kind="stable")]
    addresses = lives.address[alive]
    used = np.flatnonzero(seen.ranges["is_used"] & (seen.ranges["requested_bytes"] > 0))
    place = np.searchsorted(addresses, seen.ranges["address"][used])
    place = np.minimum(place, len(alive) - 1)
    is_same = addresses[place] == seen.ranges["address"][used]
    used, owners = used[is_same], alive[place[is_same]]
    is_named = lives.site[owners] > 0
    seen.ranges["site"][used[is_named]] = lives.site[owners[is_named]]
    seen.ranges["category"][used] = seen.categories[owners]
