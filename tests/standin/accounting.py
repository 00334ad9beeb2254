"""What PyTorch's snapshot of its memory adds up to, to be compared with its statistics."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

ALLOCATED = {"active_allocated"}
ACTIVE = {"active_allocated", "active_pending_free", "active_awaiting_free"}


def rounded(size_bytes: int) -> int:
    """Return what PyTorch's allocator makes of a request: a multiple of 512 bytes, 0 for none."""
    return -(-size_bytes // 512) * 512


def tensor_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return what tensors with memory of their own occupy in PyTorch's allocator."""
    return sum(rounded(tensor.untyped_storage().nbytes()) for tensor in tensors)


def _add_block(total: Counter[str], block: dict[str, Any], segment: dict[str, Any]) -> None:
    if block["state"] in ALLOCATED:
        total["allocation"] += 1
        total["allocated_bytes"] += block["size"]
    if block["state"] in ACTIVE:
        total["active"] += 1
        total["active_bytes"] += block["size"]
        total["requested_bytes"] += block["requested_size"]
    elif len(segment["blocks"]) > 1 and not segment["is_expandable"]:
        total["inactive_split"] += 1
        total["inactive_split_bytes"] += block["size"]


def sums(segments: list[dict[str, Any]], device: int) -> dict[str, int]:
    """Add up a snapshot's segments on a device, under the names that memory_stats() has."""
    total = Counter(
        allocation=0,
        allocated_bytes=0,
        active=0,
        active_bytes=0,
        requested_bytes=0,
        inactive_split=0,
        inactive_split_bytes=0,
        reserved_bytes=0,
    )
    for segment in segments:
        if segment["device"] == device:
            total["reserved_bytes"] += segment["total_size"]
            for block in segment["blocks"]:
                _add_block(total, block, segment)
    return dict(total)


def statistics(names: Iterable[str], device: int) -> dict[str, int]:
    """Return the same from memory_stats()."""
    stats = torch.cuda.memory_stats(device)
    return {name: stats[f"{name}.all.current"] for name in names}


def tiling_faults(segments: list[dict[str, Any]]) -> list[str]:
    """Return the segments whose blocks leave a hole or overlap."""
    faults = []
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            if block["address"] != at:
                faults.append(f"{block['address']:#x} instead of {at:#x}")
            at = block["address"] + block["size"]
        if at != segment["address"] + segment["total_size"]:
            faults.append(f"{segment['address']:#x} ends at {at:#x}")
    return faults


def requested_after(events: list[dict[str, Any]]) -> int:
    """Return the requested bytes that a recorded history leaves allocated."""
    sign = {"alloc": 1, "free_completed": -1}
    return sum(sign.get(event["action"], 0) * event["size"] for event in events)


def held_bytes() -> list[int]:
    """Return what PyTorch holds on each device."""
    return [torch.cuda.memory_reserved(device) for device in range(torch.cuda.device_count())]


def live_bytes() -> list[int]:
    """Return what lives on each device."""
    return [torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count())]


def give_back() -> None:
    """Let PyTorch give back whatever nobody uses."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 (its only name)
    torch.cuda.empty_cache()


def reserved_bytes() -> list[int]:
    """Return what PyTorch holds on each device once it gave back whatever nobody uses."""
    gc.collect()
    give_back()
    return held_bytes()
