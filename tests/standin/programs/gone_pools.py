"""Graphs in one pool from small to large, and a MemPool: recorded under gmlake.

Arguments: the files of two snapshots, with all of it there and with all of it gone. Prints what was
reserved at the peak, and by each pool while it was there, as JSON.
"""

from __future__ import annotations

import json
import sys

import torch

import gmlake

MIB = 1 << 20


def empty(size_mib: int) -> torch.Tensor:
    return torch.empty(size_mib * MIB, dtype=torch.uint8, device="cuda")


def capture(batch: int, pool: object) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):  # type: ignore[arg-type]
        first = empty(20 * batch)
        second = empty(30 * batch)
        del first
        output = empty(batch)
        del second
    return graph, output


def reserved_by_pool() -> dict[str, int]:
    sizes: dict[str, int] = {}
    for segment in torch.cuda.memory._snapshot()["segments"]:  # noqa: SLF001
        name = str(list(segment["segment_pool_id"]))
        sizes[name] = sizes.get(name, 0) + segment["total_size"]
    return sizes


def main(whole: str, gone: str) -> None:
    session = gmlake.enable()
    torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001
    shared = torch.cuda.graph_pool_handle()
    held: list[object] = [capture(batch, shared) for batch in range(1, 13)]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        parts = [empty(20) for _ in range(10)]
        del parts[::2]
        held += [empty(70), parts.pop()]  # the first of them in a view, which lives at the end
    sizes = reserved_by_pool()
    torch.cuda.memory._dump_snapshot(whole)  # type: ignore[no-untyped-call]  # noqa: SLF001
    held.clear()
    parts.clear()
    del pool
    torch.cuda.empty_cache()
    left = empty(50)
    empty(300)
    session.trim()  # past PyTorch
    torch.cuda.memory._dump_snapshot(gone)  # type: ignore[no-untyped-call]  # noqa: SLF001
    del left
    print(json.dumps({"reserved": torch.cuda.max_memory_reserved(), "by_pool": sizes}))


main(*sys.argv[1:])
