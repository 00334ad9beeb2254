"""Swaps PyTorch's allocator for one in C before CUDA starts, with every hook that there is.

Its argument is the library of pluggable.c; with a second one gmlake is enabled before. It prints
what was seen as JSON.
"""

# Hooks have private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import gc
import json
import sys
from typing import Any

import torch
from tests.standin.training import Trainer

import gmlake
from gmlake.standin import control

KINDS = (
    *("alloc", "free", "init", "reset", "fraction", "base", "record", "begin", "end", "release"),
)
SETTERS = {
    "init": "set_init_fn",
    "reset": "set_reset_fn",
    "fraction": "set_memory_fraction_fn",
    "base": "set_base_alloc_fn",
    "record": "set_record_stream_fn",
    "begin": "set_begin_allocate_to_pool",
    "end": "set_end_allocate_to_pool_fn",
    "release": "set_release_pool",
}


def swap(path: str) -> ctypes.CDLL:
    """Make the library's functions PyTorch's allocator."""
    library = ctypes.CDLL(path)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "plug_alloc", "plug_free")
    for hook, setter in SETTERS.items():
        address = ctypes.cast(getattr(library, f"plug_{hook}"), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)
    return library


def asked(library: ctypes.CDLL) -> dict[str, int]:
    """Return how often each function of the allocator was called."""
    counts = (ctypes.c_uint64 * len(KINDS)).in_dll(library, "asked")
    return dict(zip(KINDS, counts, strict=True))


def pool_of(library: ctypes.CDLL, name: str) -> list[int]:
    """Return the pool that a hook was told of last."""
    return list((ctypes.c_uint64 * 2).in_dll(library, name))


def number(library: ctypes.CDLL, name: str, kind: Any) -> Any:
    """Return what the allocator remembers under a name."""
    return kind.in_dll(library, name).value


def refused(function: Any) -> str:
    """Return what PyTorch says when it cannot tell."""
    try:
        function()
    except RuntimeError as error:
        return str(error)
    return "it could"


def use_streams(library: ctypes.CDLL) -> dict[str, Any]:
    """Lend a tensor to another stream."""
    side = torch.cuda.Stream()
    lent = torch.ones(1000, device="cuda")
    lent.record_stream(side)
    return {
        "is_stream_known": number(library, "recorded_stream", ctypes.c_void_p) == side.cuda_stream
    }


def use_graph(library: ctypes.CDLL) -> dict[str, Any]:
    """Capture and replay a graph."""
    x = torch.ones(256, 256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    # Memory is taken within: cudaMalloc would break a capture that forbids it to this thread.
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    pool = list(graph.pool())
    is_begun = pool == pool_of(library, "begun") == pool_of(library, "ended")
    del y
    graph.reset()
    return {"is_begun": is_begun, "is_released": pool == pool_of(library, "released")}


def main() -> None:
    """Do it all in order."""
    session = gmlake.enable() if len(sys.argv) > 2 else None
    library = swap(sys.argv[1])
    results: dict[str, Any] = {"backend": torch.cuda.get_allocator_backend()}
    trainer = Trainer(torch.bfloat16)
    for _ in range(3):
        trainer.step()
    torch.cuda.set_per_process_memory_fraction(0.75)
    results |= use_streams(library) | use_graph(library)
    results["most_bytes"] = number(library, "most_bytes", ctypes.c_uint64)
    results["device_count"] = number(library, "device_count", ctypes.c_int)
    results["fraction"] = number(library, "fraction", ctypes.c_double)
    results["no_statistics"] = refused(torch.cuda.memory_allocated)
    results["no_snapshot"] = refused(torch.cuda.memory_snapshot)
    results["no_pool"] = refused(torch.cuda.MemPool)
    del trainer
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    results["live_bytes"] = number(library, "live_bytes", ctypes.c_uint64)
    results["asked"] = asked(library)
    results["calls"] = control.calls()
    results["gmlake"] = session and [session.mode, gmlake.is_enabled(), gmlake.enable().why]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
