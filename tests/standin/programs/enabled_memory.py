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
from tests.standin.accounting import sums
from tests.standin.refusal import refused
from torch.cuda import (
    memory_snapshot,
    memory_stats,
)

import gmlake
from gmlake.standin import control

MIB = 1 << 20


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
