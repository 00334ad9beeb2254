"""PyTorch's snapshot of this process, with what gmlake alone knows beside it."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch

from gmlake.pytorch import compat, lakes, sleeping
from gmlake.snapshots import beside
from gmlake.snapshots.capture import part_of
from gmlake.trace.trace import OTHER_BYTES


def document() -> dict[str, Any] | None:
    """Return the snapshot; None where CUDA is not in use."""
    if compat.is_in_bad_fork() or not torch.cuda.is_initialized():
        return None
    found = compat.memory_snapshot()
    add_part(found)
    return found


def add_part(document: dict[str, Any]) -> None:
    """Add what gmlake alone knows to a snapshot of PyTorch."""
    parts = []
    for device, lake in lakes.by_device().items():
        counters: dict[str, Any] = dict(lake.stats())
        counters |= lakes.shares_of_device(device, counters["reserved_bytes"])
        if "other_bytes" in counters:
            settings = document["allocator_settings"]
            settings[f"{OTHER_BYTES}.{device}"] = counters["other_bytes"]
        parts.append(part_of(device, lakes.on_device(device), counters))
    sleeping.name_regions(document)
    document[beside.KEY] = beside.together(parts)
