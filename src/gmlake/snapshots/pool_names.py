"""Names private pools by their kind: the memory of CUDA graphs, or a torch.cuda.MemPool.

PyTorch's id of a pool is a pair. A capture that is given no pool makes (n, 0). MemPool() and
graph_pool_handle() both make (0, n), counted together, and graph trees use the latter. What was
allocated in such a pool tells them apart. CUDA cannot capture the default stream, so what lies on
it is of a MemPool. Graph trees and make_graphed_callables() are on the call paths of what they
allocate. The `with` blocks of use_mem_pool() and torch.cuda.graph() leave no frame on any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.snapshots.classes import distinct
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.trace.trace import REGION_NAME
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.snapshots.sites import OwnLines

OUTSIDE: Final = "outside of private pools"

_OF_REGIONS: Final = int.from_bytes(b"gmlake", "little")
"""The first number of what stands for a pool where a snapshot has memory of a region."""

_NAMES: Final = {"graph": "graph pool", "mempool": "MemPool", "": "MemPool or graph pool"}
_CAPTURING: Final = re.compile(r"[ /\\]torch.(?:cuda.graphs|_inductor.cudagraph_trees)\.py:")
_MOST_NAMED: Final = 4
_LONGEST: Final = 80  # name of a region, as files can be hostile


@dataclass(frozen=True)
class PrivatePool:
    """A private pool, or a region, which serves nothing else either.

    id: PyTorch's. kind: "graph", "mempool", "region", or "" if that is not known. is_sure: the kind
    is no guess. at_end: whether it holds memory at the end of the recording; None if that is not
    recorded. region: what a region is called.
    """

    id: tuple[int, int]
    kind: str = ""
    is_sure: bool = False
    at_end: bool | None = None
    region: str = ""

    @property
    def name(self) -> str:
        """Return the kind and the id, how sure the kind is, and whether the pool is gone."""
        said = self.region or f"{_NAMES[self.kind]} {self.id}"
        said += ", most likely" if self.kind and not self.is_sure else ""
        return f"{said}, gone at the end" if self.at_end is False else said


def pool_keys(pool: PrivatePool | None) -> dict[str, Any]:
    """Return what JSON says of the pool of some memory; None: it is outside of private pools."""
    return {
        "pool": list(pool.id) if pool else None,
        "pool_kind": pool.kind or None if pool else None,
        "pool_is_sure": pool.is_sure if pool else None,
        "pool_at_end": pool.at_end if pool else None,
    }


def private_pools(seen: DeviceSnapshot, lines: OwnLines) -> tuple[PrivatePool, ...]:
    """Return the pools of a recording, in the order of their numbers."""
    trace, lives, spans = seen.trace, seen.lives, seen.spans
    if not trace.pools:
        return ()
    of_block = trace.block_pools
    ids = np.flatnonzero(of_block)
    places, which = distinct(lives.site[ids])
    is_captured = [any(map(_CAPTURING.search, lines.frames(place))) for place in places.tolist()]
    captured = set(of_block[ids][np.array(is_captured, np.bool_)[which]].tolist())
    uncaptured = set(of_block[ids][lives.stream[ids] == 0].tolist())
    streams: dict[tuple[int, int], set[int]] = {}
    for owner, number, stream in spans[["pool_owner", "pool_number", "stream"]].tolist():
        streams.setdefault((owner, number), set()).add(stream)
    is_told = len(spans) > 0 or seen.has_reserved_events
    found = []
    for number, pool in enumerate(trace.pools, 1):
        is_uncaptured = number in uncaptured or 0 in streams.get(pool, ())
        kind = region = ""
        if pool[0] == _OF_REGIONS:
            told = trace.settings.get(f"{REGION_NAME}.{pool[1]}")
            kind, region = "region", str(told)[:_LONGEST] if told else f"region {pool[1]}"
        elif pool[0] or (number in captured and not is_uncaptured):
            kind = "graph"
        elif is_uncaptured and number not in captured:
            kind = "mempool"
        is_sure = kind == "mempool" or pool[0] > 0
        found.append(PrivatePool(pool, kind, is_sure, pool in streams if is_told else None, region))
    return tuple(found)


def in_pools(sizes: Iterable[tuple[PrivatePool, int]]) -> str:
    """Return how much each pool has, the largest first: "20.0 MiB in MemPool (0, 1); ..."."""
    order = sorted(sizes, key=lambda one: -one[1])
    parts = [f"{format_size(size)} in {pool.name}" for pool, size in order[:_MOST_NAMED]]
    if rest := order[_MOST_NAMED:]:
        parts.append(f"{format_size(sum(size for _, size in rest))} in {len(rest):,} more")
    return "; ".join(parts)
