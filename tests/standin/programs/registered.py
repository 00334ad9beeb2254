"""torch.cuda.MemPool over an allocator of its own, as over ncclMemAlloc, while gmlake serves.

Its argument is the library of pluggable.c; it prints what was seen as JSON.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import sys
from typing import TYPE_CHECKING, Any

import torch

import gmlake

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

MIB = 1 << 20


def live() -> int:
    """Return what gmlake has live on the device."""
    return int(gmlake.snapshot().devices[0].counters["live_bytes"])


def use(path: str, around: AbstractContextManager[object]) -> dict[str, Any]:
    """Allocate in a pool inside of something; return who was asked, and whether it came back."""
    library = ctypes.CDLL(path)
    given = ctypes.c_uint64.in_dll(library, "live_bytes")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "plug_alloc", "plug_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    outside = torch.ones(MIB, device="cuda")
    before = live()
    with around, torch.cuda.use_mem_pool(pool):
        inside = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    after = torch.ones(MIB, device="cuda")
    seen = {
        "of_the_pool": given.value >= 8 * MIB,
        "not_gmlakes": live() - before < after.nbytes + inside.nbytes,
        "segments": [one["total_size"] for one in pool.snapshot()] == [20 * MIB],
        "exportable": gmlake.is_exportable(inside),
    }
    del inside, pool, outside, after
    gc.collect()
    torch.cuda.empty_cache()
    seen["came_back"] = given.value == 0
    return seen


def main() -> None:
    """Do it alone, and inside of what lets gmlake serve otherwise."""
    gmlake.enable()
    torch.ones(1, device="cuda")
    path = sys.argv[1]
    results = {
        "alone": use(path, contextlib.nullcontext()),
        "region": use(path, gmlake.region("weights")),
        "exportable": use(path, gmlake.exportable()),
    }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
