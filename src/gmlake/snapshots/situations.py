"""Why a request was refused: one account of it, which every answer tells.

gmlake's core takes it where it refuses, and a file of that refusal carries it. For a refusal of
PyTorch's own allocator the same numbers are computed from the recording. The core writes the
sentences for both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake import _core
from gmlake.trace.layout import SMALL_LIMIT, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.snapshots.moments import Free, Playback
    from gmlake.trace import Trace

KINDS: Final = {"": 0, "graph": 1, "mempool": 2}
"""The kinds of private pools, as numbers of an account."""

_NEW_BYTES: Final = 2 << 20  # PyTorch takes whole multiples from the driver,
_MEDIUM_BYTES: Final = 20 << 20  # and this for requests
_LEAST_LARGE: Final = 10 << 20  # below that


@dataclass(frozen=True)
class Situation:
    """What there was when a request was refused. numbers: sizes in bytes, by name.

    policy: of gmlake, which refused; "": PyTorch's own allocator did.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    policy: str = ""

    def __getitem__(self, name: str) -> int:
        """Return a number, 0 if it is not known."""
        return self.numbers.get(name, 0)

    @cached_property
    def _told(self) -> tuple[str, int, tuple[str, ...]]:
        return _core.tell_refusal({**self.numbers, "policy": self.policy})

    @property
    def case(self) -> str:
        """One of "full", "fragmented", "elsewhere", "limit" and "outside"."""
        return self._told[0]

    @property
    def others_bytes(self) -> int:
        """What neither this process's allocators hold of the device nor is free."""
        return self._told[1]

    @property
    def verdict(self) -> str:
        """Which case it is, and what would have been served."""
        return _joined(self._told[2][:2])

    @property
    def figures(self) -> str:
        """The device, what is held of it by whom, and what was tried."""
        return _joined(self._told[2][2:])

    @property
    def held_bytes(self) -> int:
        """What all of the process's allocators held."""
        return self["held_bytes"] + self["native_bytes"] + self["regions_bytes"]

    @property
    def capacity_bytes(self) -> int:
        """The most that they could have held; 0 if it is not known what they held."""
        held = self.held_bytes
        return held + self["room_bytes"] if held else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the case, the policy and every number."""
        return {"case": self.case, "policy": self.policy, **self.numbers}


def verdict_of(account: dict[str, Any]) -> str:
    """Return the verdict of an account as the core gives it."""
    return _joined(_core.tell_refusal(account)[2][:2])


def _joined(sentences: tuple[str, ...]) -> str:
    return " ".join(filter(None, sentences))


def told(playback: Playback, row: int) -> Situation | None:
    """Return the account that gmlake left of a refusal in the file, if it is of this one."""
    trace = playback.seen.trace
    if row != refused_row(trace):
        return None
    return Situation(trace.refusal, trace.refused_by)


def refused_row(trace: Trace) -> int:
    """Return the event of the refusal whose account a trace has; -1: it has none."""
    rows = np.flatnonzero(trace.requests["kind"] == Kind.OOM)
    size_bytes = trace.refusal.get("size_bytes")
    is_it = len(rows) and int(trace.requests["size_bytes"][rows[-1]]) == size_bytes
    return int(rows[-1]) if is_it else -1


def has_refused(trace: Trace, policy: str, capacity_bytes: int) -> bool:
    """Whether that policy refused in no less memory when the trace was recorded.

    What was recorded is better evidence than a replay: that knows of no capture, nor of streams.
    """
    why = Situation(trace.refusal, trace.refused_by)
    is_its = bool(why.policy) and why.policy == policy and refused_row(trace) >= 0
    return is_its and capacity_bytes <= why.capacity_bytes


def computed(playback: Playback, moment: int, row: int, free: Free) -> Situation:
    """Return the account of a refusal as far as a recording tells."""
    seen, held = playback.seen, playback.held[playback.held_at(moment)]
    event = seen.events[row]
    size_bytes, left_bytes = int(event["size_bytes"]), int(event["address"])
    pool, regions = playback.pool(int(event["pool"])), _regions(playback, row)
    live, sizes = playback.live_at(moment), (held["end"] - held["begin"]).astype(np.int64)
    elsewhere = np.isin(playback.held_pools[playback.held_at(moment)], regions)
    in_regions = live[np.isin(playback.block_pools[live], regions)]
    is_limited = left_bytes >= size_bytes
    room_bytes = 0 if is_limited else left_bytes
    lives = seen.lives
    numbers = {
        "size_bytes": size_bytes,
        "stream": int(event["stream"]),
        "pool_owner": pool.id[0] if pool else 0,
        "pool_number": pool.id[1] if pool else 0,
        "device": seen.device,
        "total_bytes": seen.trace.device_bytes,
        "free_bytes": left_bytes,
        "room_bytes": room_bytes,
        "held_bytes": _sum(sizes, ~elsewhere),
        "regions_bytes": _sum(sizes, elsewhere),
        "live_bytes": int(lives.live_bytes[row] - lives.size_bytes[in_regions].sum()),
        "live_blocks": len(live) - len(in_regions),
        "is_limited": int(is_limited),
        **_idle(playback, row, free, regions),
    }
    new_bytes = _new_bytes(playback, size_bytes, room_bytes)
    joined_bytes = numbers["idle_bytes"] if playback.joins else 0
    numbers["serves_bytes"] = max(numbers["largest_bytes"], joined_bytes + new_bytes)
    return Situation(numbers)


def _regions(playback: Playback, row: int) -> list[int]:
    """Return the pools that are other regions, whose lakes serve nothing of this request."""
    own = int(playback.seen.events["pool"][row])
    pools = enumerate(playback.pools, 1)
    return [number for number, pool in pools if pool.kind == "region" and number != own]


def _idle(playback: Playback, row: int, free: Free, regions: list[int]) -> dict[str, int]:
    """Return what is free for a request, and what is where it cannot serve it."""
    event, sizes = playback.seen.events[row], free.sizes
    in_pool = free.pool == event["pool"]
    in_reach = in_pool & (playback.joins | (free.stream == event["stream"]))
    fits = in_reach & (playback.merges | (free.is_small == (event["size_bytes"] <= SMALL_LIMIT)))
    in_others = np.bincount(free.pool, np.where(in_pool, 0, sizes), minlength=1).astype(np.int64)
    outside_bytes, in_others[0] = int(in_others[0]), 0
    regions = [number for number in regions if number < len(in_others)]
    regions_idle_bytes, in_others[regions] = int(in_others[regions].sum()), 0
    most = playback.pool(int(np.argmax(in_others)))
    return {
        "idle_bytes": _sum(sizes, in_reach),
        "pieces": int(in_reach.sum()),
        "largest_bytes": int(sizes[fits].max(initial=0)),
        "streams_bytes": _sum(sizes, in_pool & ~in_reach),
        "pools_bytes": int(in_others.sum()),
        "regions_idle_bytes": regions_idle_bytes,
        "outside_bytes": outside_bytes,
        "most_bytes": int(in_others.max()),
        "most_owner": most.id[0] if most else 0,
        "most_number": most.id[1] if most else 0,
        "most_kind": KINDS.get(most.kind, 0) if most else 0,
    }


def _sum(sizes: NDArray[np.int64], chosen: NDArray[np.bool_]) -> int:
    return int(sizes[chosen].sum())


def _new_bytes(playback: Playback, size_bytes: int, room_bytes: int) -> int:
    """Return how much of what the device has left a request of that size can get."""
    if not playback.merges and SMALL_LIMIT < size_bytes < _LEAST_LARGE:
        return room_bytes if room_bytes >= _MEDIUM_BYTES else 0
    return room_bytes // _NEW_BYTES * _NEW_BYTES
