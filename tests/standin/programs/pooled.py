"""Graphs with pools of their own and in one, a MemPool, and what is beside them: a recording.

Arguments: the file of the snapshot, and whether gmlake serves ("gmlake" or "pytorch"). Prints what
was reserved at the peak as JSON.
"""

from __future__ import annotations

import json
import sys

import torch

import gmlake

MIB = 1 << 20


def empty(size_mib: int) -> torch.Tensor:
    return torch.empty(size_mib * MIB, dtype=torch.uint8, device="cuda")


def capture(batch: int, pool: object = None) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):  # type: ignore[arg-type]
        first = empty(20 * batch)
        second = empty(30 * batch)
        small = torch.zeros(100, device="cuda")
        del first
        output = empty(batch)
        del second, small
    return graph, output


def main(path: str, allocator: str) -> None:
    if allocator == "gmlake":
        gmlake.enable()
    torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001
    held: list[object] = [empty(3)]
    held += [capture(batch) for batch in (1, 3, 2)]
    shared = torch.cuda.graph_pool_handle()
    for batch in (1, 2, 4, 3):
        held += [capture(batch, shared), empty(5 * batch)]
        empty(7 * batch)
    pool = torch.cuda.MemPool()
    for size in (30, 12, 40):
        with torch.cuda.use_mem_pool(pool):
            held.append(empty(size))
            empty(2 * size)
        empty(size)
    torch.cuda.empty_cache()
    held.append(empty(50))
    torch.cuda.memory._dump_snapshot(path)  # type: ignore[no-untyped-call]  # noqa: SLF001
    print(json.dumps({"reserved": torch.cuda.max_memory_reserved()}))


main(*sys.argv[1:])
