"""What torch.cuda.memory_stats() says where gmlake is PyTorch's allocator."""

from __future__ import annotations

from typing import Any, Final

import torch

from gmlake.pytorch import compat, lakes
from gmlake.pytorch.locking import process_lock

_POOLS: Final = ("all", "small_pool", "large_pool")
_VALUES: Final = ("current", "peak", "allocated", "freed")
_POOLED: Final = (
    *("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes"),
    *("active_bytes", "inactive_split_bytes", "requested_bytes"),
)
_SINGLE: Final = ("oversize_allocations", "oversize_segments")
_COUNTS: Final = (
    *("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc"),
    "num_device_free",
)
_SETTING: Final = "max_split_size"  # which is no count
_ACCUMULATED: Final = ("allocated", "freed")

_lock = process_lock()  # guards the rest
_forgotten: dict[int, dict[str, int]] = {}  # by device: what was counted before the last reset


def nested(device: int) -> dict[str, Any]:
    """Return the statistics of a device as torch._C._cuda_memoryStats() does, sizes in bytes.

    All are zero where nothing has been asked of the device. Raises RuntimeError where there is
    no such device, as the other functions here do.
    """
    _check(device)
    flat = _since_reset(device)
    result: dict[str, Any] = {name: flat.get(name, 0) for name in _COUNTS}
    if compat.is_since(12):
        result["num_oom_rejections"] = 0
    if compat.is_since(13):
        result["reserved_bytes_by_private_pools"] = {}  # nobody has one
    result[_SETTING] = flat.get(_SETTING, -1)
    for name in _POOLED:
        result[name] = {pool: _stat(flat, f"{name}.{pool}") for pool in _POOLS}
    for name in _SINGLE:
        result[name] = _stat(flat, name)
    return result


def reset_peaks(device: int) -> None:
    """Let the peaks begin again at the current values."""
    _check(device)
    for lake in lakes.on_device(device):
        lake.reset_peaks()


def reset_accumulated(device: int) -> None:
    """Let what only ever rises begin again at zero."""
    _check(device)
    counted = _counted(device)
    with _lock:
        _forgotten[device] = {name: value for name, value in counted.items() if _only_rises(name)}


def _check(device: int) -> None:
    count = torch.cuda.device_count()
    if not 0 <= device < count:
        raise RuntimeError(f"there is no device {device}; PyTorch sees {count}")


def _only_rises(name: str) -> bool:
    return name in _COUNTS or name.rpartition(".")[2] in _ACCUMULATED


def _counted(device: int) -> dict[str, int]:
    """Return the sums of all lakes on a device, as native mode has them: of peaks, too."""
    sums: dict[str, int] = {}
    for lake in lakes.on_device(device):
        for name, value in lake.torch_stats().items():
            sums[name] = value if name == _SETTING else sums.get(name, 0) + value
    return sums


def _since_reset(device: int) -> dict[str, int]:
    counted = _counted(device)
    with _lock:
        forgotten = _forgotten.get(device, {})
    return {name: value - forgotten.get(name, 0) for name, value in counted.items()}


def _stat(flat: dict[str, int], name: str) -> dict[str, int]:
    return {value: flat.get(f"{name}.{value}", 0) for value in _VALUES}
