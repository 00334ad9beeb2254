"""The lakes that serve PyTorch: one for each device that was used, never closed."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gmlake import _core
from gmlake.lake import Lake
from gmlake.pytorch import compat

if TYPE_CHECKING:
    from gmlake._core import StreamPair


def find(device: int) -> Lake | None:
    """Return the lake of a device; None before its first request, and in a forked child.

    The locks of a parent's lakes must not be touched: another thread may have held one.
    """
    return None if compat.is_in_bad_fork() else _core.torch_lake(Lake, device)


def devices() -> tuple[int, ...]:
    """Return the devices that have a lake, in ascending order."""
    return () if compat.is_in_bad_fork() else tuple(_core.torch_devices())


def by_device() -> dict[int, Lake]:
    """Return the lake of every device that has one."""
    return {device: lake for device in devices() if (lake := find(device)) is not None}


def current_device() -> int:
    """Return PyTorch's current device, 0 if it uses none yet, without starting CUDA."""
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


def all_lakes() -> list[Lake]:
    """Return the lake of every device that has one."""
    return list(by_device().values())


def of_regions(device: int | None = None) -> list[tuple[int, int, Lake]]:
    """Return (region, device, lake) of each region's lakes, on a device or on all."""
    if compat.is_in_bad_fork():
        return []
    found = [
        (region, on, _core.torch_lake(Lake, number))
        for number, region, on in _core.torch_region_lakes()
        if device is None or on == device
    ]
    return [(region, on, lake) for region, on, lake in found if lake is not None]


def on_device(device: int) -> list[Lake]:
    """Return every lake on a device: its own, if it has one, and those of regions."""
    main = find(device)
    return [*([] if main is None else [main]), *(lake for _, _, lake in of_regions(device))]


def everywhere() -> list[Lake]:
    """Return every lake, including those of regions."""
    return [*all_lakes(), *(lake for _, _, lake in of_regions())]


def trim_all() -> None:
    """Release idle memory, on every device and in every region."""
    for lake in everywhere():
        lake.trim()


def reserved_bytes() -> int:
    """Return the reserved bytes of all lakes."""
    return sum(lake.stats()["reserved_bytes"] for lake in everywhere())


def in_regions_bytes(device: int) -> int:
    """Return the bytes that awake regions reserve on a device."""
    held = [lake for _, _, lake in of_regions(device) if not lake.is_asleep]
    return sum(lake.stats()["reserved_bytes"] for lake in held)


def shares_of_device(device: int, held_bytes: int) -> dict[str, int]:
    """Return how a device's memory is divided, in bytes; {} if CUDA does not tell.

    held_bytes: reserved by the device's lake. device_bytes: its size. device_free_bytes: free on
    it. regions_bytes: reserved by awake regions. pytorch_bytes: reserved by PyTorch's own
    allocator. other_bytes: all else, such as CUDA contexts, NCCL and other processes.
    """
    if compat.is_in_bad_fork() or not torch.cuda.is_initialized():
        return {}
    try:
        free_bytes, size_bytes = map(int, torch.cuda.mem_get_info(device))
        counted_bytes = int(torch.cuda.memory_reserved(device))
    except RuntimeError:  # e.g. while a graph is captured
        return {}
    ever_bytes = sum(lake.stats()["reserved_bytes"] for _, _, lake in of_regions(device))
    regions_bytes = in_regions_bytes(device)
    pytorch_bytes = max(0, counted_bytes - held_bytes - ever_bytes)
    known_bytes = free_bytes + held_bytes + regions_bytes + pytorch_bytes
    return {
        "device_bytes": size_bytes,
        "device_free_bytes": free_bytes,
        "regions_bytes": regions_bytes,
        "pytorch_bytes": pytorch_bytes,
        "other_bytes": max(0, size_bytes - known_bytes),
    }


def stream_pairs(device: int | None = None) -> list[StreamPair]:
    """Return what each pair of streams of a device lent each other; None: the current device.

    Each pair has owner and borrower, the handles of two streams; borrowed_bytes, the free memory of
    the owner that the borrower took, and borrows, how often; waits of the borrower for its sake,
    and refused_waits, which the setting borrow_waits prevented; and deferred_free_bytes, held now:
    freed tensors of the owner that the borrower may still use after record_stream(). Empty before
    the first request on that device.
    """
    lake = find(current_device() if device is None else device)
    return [] if lake is None else lake.stream_pairs()
