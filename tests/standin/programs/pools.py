"""Graphs and pools whose memory is the lake's; prints what was seen as JSON.

The argument is "gmlake", or "" for PyTorch alone.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import gc
import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1 << 20
GIB = 1 << 30


def some(size: int) -> torch.Tensor:
    """Return so many bytes of the device."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def reserved() -> int:
    """Return the MiB that are reserved once all is collected."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() // MIB


def capture(batches: Iterable[int], pool: Any) -> list[tuple[torch.cuda.CUDAGraph, torch.Tensor]]:
    """Capture a graph for each batch size, as a server does: two temporaries and a result."""
    captured = []
    for batch in batches:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            first = some(batch * 20 * MIB).fill_(0)
            second = some(batch * 30 * MIB).fill_(0)
            del first
            result = some(batch * MIB).fill_(batch)
            del second
        captured.append((graph, result))
    return captured


def serve() -> dict[str, list[int]]:
    """Return what graphs reserve in each order, and what is left."""
    ways = {
        "own": (range(1, 17), None),
        "ascending": (range(1, 17), torch.cuda.graph_pool_handle()),
        "descending": (range(16, 0, -1), torch.cuda.graph_pool_handle()),
    }
    seen: dict[str, list[int]] = {}
    for way, (batches, pool) in ways.items():
        captured = capture(batches, pool)
        held = torch.cuda.memory_reserved() // MIB
        for graph, result in captured:
            graph.replay()
            result.data_ptr()
        del captured, graph, result
        seen[way] = [held, reserved()]
    return seen


def fail(how: str) -> None:
    """Let a capture fail: by an exception of the program, or by a call that makes it invalid."""
    graph = torch.cuda.CUDAGraph()
    with contextlib.suppress(RuntimeError, ValueError), torch.cuda.graph(graph):
        kept = some(500 * MIB)
        kept.fill_(0)
        if how == "raises":
            raise ValueError(how)
        torch.cuda.synchronize()


def failures() -> dict[str, list[Any]]:
    """Return what failed captures leave: reserved MiB, and what the last large request found."""
    seen = {}
    for how in ("raises", "invalid"):
        for _ in range(3):
            fail(how)
        held = [some(400 * MIB) for _ in range(12)]
        del held[::2]  # 2400 MiB of holes
        large = ""
        try:
            some(3 * GIB)
        except torch.OutOfMemoryError as error:
            large = str(error)
        del held
        seen[how] = [large, reserved()]
    return seen


def retry() -> list[int]:
    """Return what is reserved where a pool and the rest lack what the other one holds idle."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        del (held := [some(5 * GIB)])[:]
        held.append(some(6 * GIB))
    del held[:]
    outside = some(6 * GIB)
    seen = [torch.cuda.memory_reserved() // MIB]
    del outside
    with torch.cuda.use_mem_pool(pool):
        inside = some(6 * GIB)
    seen.append(torch.cuda.memory_reserved() // MIB)
    del inside
    torch.cuda.empty_cache()
    seen.append(torch.cuda.memory_reserved() // MIB)
    del pool
    return [*seen, reserved()]


def switch_off() -> list[bool]:
    """Return whose a pool's tensors are, where gmlake begins or ends in the life of the pool."""
    native = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(native):
        held = [some(MIB)]
    with gmlake.enabled():
        with torch.cuda.use_mem_pool(native):
            held.append(some(MIB))
        ours = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(ours):
            held.append(some(MIB))
    with torch.cuda.use_mem_pool(ours):
        held.append(some(MIB))
    lake = _core.torch_lake(gmlake.Lake, 0)
    assert lake is not None
    whose = []
    while held:
        before = lake.stats()["live_bytes"]
        held.pop(0)
        whose.append(lake.stats()["live_bytes"] < before)
    del native, ours
    reserved()
    return whose


def nested() -> list[bool]:
    """Return whether nested pools, and threads beside them, get memory of their own pool."""
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    tensors: dict[str, torch.Tensor] = {}

    def beside() -> None:
        tensors["beside"] = some(MIB)

    with torch.cuda.use_mem_pool(outer):
        tensors["outer"] = some(MIB)
        with torch.cuda.use_mem_pool(inner):
            tensors["inner"] = some(MIB)
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join()
        tensors["again"] = some(MIB)

    def is_in(pool: torch.cuda.MemPool, name: str) -> bool:
        return any(
            0 <= tensors[name].data_ptr() - segment["address"] < segment["total_size"]
            for segment in pool.snapshot()
        )

    return [
        is_in(outer, "outer") and is_in(outer, "again") and not is_in(outer, "inner"),
        is_in(inner, "inner") and not is_in(inner, "outer"),
        not is_in(inner, "beside") and not is_in(outer, "beside"),
    ]


def main() -> None:
    with gmlake.enabled() if sys.argv[1] else contextlib.nullcontext():
        seen: dict[str, Any] = {"serve": serve(), "nested": nested()}
        if sys.argv[1]:
            seen["failures"] = failures()
            seen["retry"] = retry()
    if sys.argv[1]:
        seen["switch_off"] = switch_off()
    print(json.dumps(seen))


main()
