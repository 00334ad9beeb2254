"""Trains a GPT under the allocator that PYTORCH_ALLOC_CONF names; prints what was seen as JSON."""

# Memory history and snapshots have private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import torch
from tests.standin.accounting import (
    requested_after,
    reserved_bytes,
    statistics,
    sums,
    tiling_faults,
)
from tests.standin.training import Trainer, memory_calls

from gmlake.standin import control


def train() -> tuple[Trainer, dict[str, Any]]:
    """Train a model; return it, and what its third step did."""
    trainer = Trainer(torch.bfloat16)
    trainer.step()
    trainer.step()
    allocated = [torch.cuda.memory_allocated()]
    calls = control.calls()
    trainer.step()
    allocated.append(torch.cuda.memory_allocated())
    steady_calls = control.calls() - calls
    return trainer, {"allocated": allocated, "steady_calls": memory_calls(steady_calls)}


def refusal() -> str:
    """Return what PyTorch says to a request that is too large."""
    try:
        torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    return "it was granted"


def answer(function: Any, *arguments: Any, **options: Any) -> str:
    """Return what PyTorch says when it refuses the call."""
    try:
        function(*arguments, **options)
    except RuntimeError as error:
        return str(error)
    return "it was done"


def look_at_snapshot() -> dict[str, Any]:
    """Return what the snapshot adds up to, and PyTorch's statistics."""
    snapshot = torch.cuda.memory._snapshot()
    segments, events = snapshot["segments"], snapshot["device_traces"][0]
    total = sums(segments, 0)
    return {
        "sums": total,
        "statistics": statistics(total, 0),
        "tiling_faults": tiling_faults(segments),
        "is_expandable": all(segment["is_expandable"] for segment in segments),
        "settings": snapshot["allocator_settings"],
        "actions": Counter(event["action"] for event in events),
        "requested_after": requested_after(events),
    }


def graph_pool_bytes() -> int:
    """Capture and replay a product; return what its graph's pool reserves, in bytes."""
    x = torch.ones(512, 512, device="cuda")
    x @ x  # cuBLAS makes its workspace outside
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ x + x
    graph.replay()
    torch.cuda.synchronize()
    assert y.shape == x.shape
    return sum(
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()
        if segment["segment_pool_id"] == tuple(graph.pool())
    )


def main() -> None:
    """Do it all in order."""
    torch.cuda.init()
    free_bytes = torch.cuda.mem_get_info()[0]
    results: dict[str, Any] = {"backend": torch.cuda.get_allocator_backend()}
    is_native = results["backend"] == "native"
    if is_native:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    else:
        results["no_history"] = answer(torch.cuda.memory._record_memory_history)
        results["no_snapshot"] = answer(torch.cuda.memory_snapshot)
    trainer, seen = train()
    results |= seen
    results["reserved"] = torch.cuda.memory_reserved()
    if is_native:
        results |= look_at_snapshot()
        results["graph_pool_bytes"] = graph_pool_bytes()
    results["refusal"] = refusal()
    del trainer
    results["reserved_at_end"] = reserved_bytes()
    results["lost_bytes"] = free_bytes - torch.cuda.mem_get_info()[0]
    results["calls"] = control.calls()
    if is_native:
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        results["actions_at_end"] = Counter(event["action"] for event in events)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
