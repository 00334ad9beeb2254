"""What torch.cuda says of memory that gmlake serves; prints what was seen as JSON.

The argument names one of the functions below. Names are imported before gmlake begins, as scripts
do that know nothing of it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tests.standin.accounting import rounded, sums, tensor_bytes
from tests.standin.refusal import refused
from torch.cuda import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

import gmlake
from gmlake.standin import control

MIB = 1 << 20


def statistics() -> dict[str, Any]:
    """Compare what the statistics say with what the program holds."""
    seen: dict[str, Any] = {"unused": [memory_allocated(), dict(memory_stats())]}
    reset_peak_memory_stats()
    sizes = [100, 5000, 3 * MIB, 40 * MIB, 700 * 1024]
    held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
    total = tensor_bytes(held)
    stats = memory_stats()
    seen["allocated"] = [memory_allocated(), max_memory_allocated(), total]
    seen["requested"] = [stats["requested_bytes.all.current"], sum(sizes)]
    seen["count"] = [stats["allocation.all.current"], len(sizes)]
    small = sum(rounded(size) for size in sizes if size <= MIB)
    seen["small"] = [stats["allocated_bytes.small_pool.current"], small]
    seen["large"] = [stats["allocated_bytes.large_pool.current"], total - small]
    seen["reserved"] = [memory_reserved(), torch.cuda.mem_get_info()[1] - _free_bytes()]
    seen["accelerator"] = _twins()
    seen["nested"] = _shape(torch.cuda.memory_stats_as_nested_dict())
    seen["no_device"] = [
        refused(function, 7)
        for function in (memory_stats, reset_peak_memory_stats, reset_accumulated_memory_stats)
    ]
    seen["other_device"] = [memory_allocated(1), memory_reserved(1), len(memory_stats(1))]
    seen["summary"] = memory_summary().count("\n")
    seen["keys"] = len(stats)

    del held[3]
    seen["after_free"] = [memory_allocated(), max_memory_allocated() - total]
    reset_peak_memory_stats()
    seen["peak_reset"] = [max_memory_allocated(), memory_allocated(), total - 40 * MIB]
    freed = memory_stats()["allocated_bytes.all.freed"]
    reset_accumulated_memory_stats()
    again = memory_stats()
    seen["accumulated"] = [
        *(freed, again["allocated_bytes.all.freed"], again["allocated_bytes.all.allocated"]),
        *(again["num_device_alloc"], again["allocated_bytes.all.current"] - memory_allocated()),
    ]
    held.append(torch.empty(MIB, device="cuda"))
    seen["accumulates"] = memory_stats()["allocated_bytes.all.allocated"]
    held.clear()
    reserved = memory_reserved()
    empty_cache()
    seen["emptied"] = [reserved > 0, memory_reserved(), max_memory_reserved() == reserved]
    held.append(torch.empty(5 * MIB, device="cuda"))
    held.clear()
    torch.accelerator.empty_cache()
    seen["emptied_twin"] = memory_reserved()
    seen["cross_device"] = _on_second_device()
    return seen


def _free_bytes() -> int:
    """What the device has left, but for what the driver and PyTorch hold beside the allocator."""
    return int(torch.cuda.mem_get_info()[0])


def _shape(nested: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _shape(value) if isinstance(value, dict) else type(value).__name__
        for name, value in nested.items()
    }


def _twins() -> list[bool]:
    twin = torch.accelerator
    twin.reset_peak_memory_stats()
    # Some versions of PyTorch count in one of the two alone what the other lacks.
    ours, its = memory_stats(), twin.memory_stats()
    is_same = [
        twin.memory_allocated() == memory_allocated() > 0,
        twin.memory_reserved() == memory_reserved() > 0,
        twin.max_memory_allocated() == max_memory_allocated() > 0,
        twin.max_memory_reserved() == max_memory_reserved() > 0,
        len(ours.keys() & its.keys()) > 100,
        all(ours[name] == its[name] for name in ours.keys() & its.keys()),
    ]
    if hasattr(twin, "get_memory_info"):
        is_same.append(twin.get_memory_info() == torch.cuda.mem_get_info())
    return is_same


def _on_second_device() -> list[int]:
    held = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1")
    found = [memory_allocated(1), memory_allocated(0), len(memory_snapshot())]
    del held
    empty_cache()
    return [*found, memory_allocated(1), memory_reserved(1)]


def snapshots() -> dict[str, Any]:
    """Record a history of training, write it to the file of the second argument."""
    from tests.standin.training import Trainer

    path = Path(sys.argv[2])
    torch.cuda.memory._record_memory_history()  # noqa: SLF001
    seen: dict[str, Any] = {"is_recording": torch._C._cuda_isHistoryEnabled()}  # noqa: SLF001
    trainer = Trainer(torch.bfloat16)
    for _ in range(3):
        trainer.step()
    with torch.cuda.stream(torch.cuda.Stream()):
        side = torch.empty(3 * MIB, device="cuda")
    refused(torch.empty, 1 << 46, device="cuda")
    torch.cuda.memory._dump_snapshot(str(path))  # noqa: SLF001
    found = torch.cuda.memory._snapshot()  # noqa: SLF001
    segments = found["segments"]
    total = sums(segments, 0)
    stats = memory_stats()
    seen["sums"] = {
        name: [total[name], stats[f"{name}.all.current"]]
        for name in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes")
    }
    seen["is_apart"] = all(
        left["address"] + left["total_size"] <= right["address"]
        for left, right in pairwise(segments)
    )
    seen["is_tiled"] = all(_is_tiled(segment) for segment in segments)
    seen["is_side_there"] = any(
        block["address"] == side.data_ptr() and block["state"] == "active_allocated"
        for segment in segments
        for block in segment["blocks"]
    )
    seen["parts"] = sorted(found)
    events = found["device_traces"][0]
    seen["traces"] = [len(found["device_traces"]), len(found["device_traces"][1])]
    seen["actions"] = sorted({event["action"] for event in events})
    seen["oom"] = [event["size"] for event in events if event["action"] == "oom"]
    seen["event"] = sorted(next(event for event in events if event["action"] == "alloc"))
    seen["segment"] = sorted(segments[0])
    seen["block"] = sorted(segments[0]["blocks"][0])
    seen["live"] = _live_at_end(events) == {
        block["address"]
        for segment in segments
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    seen["light"] = len(memory_snapshot(include_traces=False)) == len(segments)
    seen["of_a_pool"] = memory_snapshot(mempool_id=(0, 1))
    seen |= _histories()
    return seen


def _live_at_end(events: list[dict[str, Any]]) -> set[int]:
    live: set[int] = set()
    for event in events:
        if event["action"] == "alloc":
            live.add(event["addr"])
        elif event["action"] == "free_completed":
            live.remove(event["addr"])
    return live


def _is_tiled(segment: dict[str, Any]) -> bool:
    position = segment["address"]
    for block in segment["blocks"]:
        if block["address"] != position:
            return False
        position += block["size"]
    return bool(position == segment["address"] + segment["total_size"])


def _histories() -> dict[str, Any]:
    """Record a few events, skip some, and stop."""
    record: Any = torch.cuda.memory._record_memory_history  # noqa: SLF001

    def actions() -> list[str]:
        held = torch.empty(3 * MIB, device="cuda")
        del held
        traces = torch.cuda.memory._snapshot()["device_traces"]  # noqa: SLF001
        return [event["action"] for event in traces[0]]

    def of_blocks(actions: list[str]) -> list[str]:
        """Leave out segments: a stitched view is one for the viewer while it holds a block."""
        return [action for action in actions if not action.startswith("segment_")]

    record(max_entries=2, clear_history=True)
    seen: dict[str, Any] = {"two": of_blocks(actions())}
    record(max_entries=100, skip_actions=["free_requested"])
    seen["skipped"] = of_blocks(actions())
    record(enabled=None)
    seen["stopped"] = [actions(), torch._C._cuda_isHistoryEnabled()]  # noqa: SLF001
    record(True, trace_alloc_max_entries=3)  # noqa: FBT003
    seen["legacy"] = len(of_blocks(actions()))
    record(False)  # noqa: FBT003
    seen["bad"] = [
        refused(record, enabled="some"),
        refused(record, context="some"),
        refused(record, stacks="some"),
        refused(record, skip_actions=["some"]),
    ]
    return seen


def libraries() -> dict[str, Any]:
    """Serve memory that no tensor has, and convolutions whose algorithms are searched for."""
    torch.backends.cudnn.benchmark = True
    layer = torch.nn.Conv2d(3, 8, 3).cuda()
    layer(torch.ones(2, 3, 32, 32, device="cuda")).sum().backward()
    before = memory_allocated()
    raw = torch.cuda.caching_allocator_alloc(5000)
    with_raw = memory_allocated()
    torch.cuda.caching_allocator_delete(raw)
    return {"raw": with_raw - before, "left": memory_allocated() - before}


def main() -> None:
    """Do what the argument names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gmlake.enable()
        results = globals()[sys.argv[1]]()
        gc.collect()
    said = [str(w.message) for w in caught if w.category is gmlake.GmlakeWarning]
    json.dump(results | {"warnings": said, "misuses": control.misuses()}, sys.stdout)


if __name__ == "__main__":
    main()
