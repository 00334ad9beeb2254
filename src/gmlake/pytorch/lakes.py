"""The lakes that serve PyTorch: one for each device that has asked for memory, never closed."""

# mypy: allow-untyped-calls

from __future__ import annotations

import torch

from gmlake import _core
from gmlake.lake import Lake
from gmlake.pytorch import compat


def find(device: int) -> Lake | None:
    """Return the lake of a device; None while nothing was asked of it, and in a forked child.

    The locks of a parent's lakes must not be touched: another thread may have held one.
    """
    return None if compat.is_in_bad_fork() else _core.torch_lake(Lake, device)


def devices() -> tuple[int, ...]:
    """Return the devices that have a lake, in ascending order."""
    return () if compat.is_in_bad_fork() else tuple(_core.torch_devices())


def current_device() -> int:
    """Return the device that PyTorch uses now, 0 where it uses none yet; starts nothing."""
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


def all_lakes() -> list[Lake]:
    """Return the lake of every device that has one."""
    return [lake for device in devices() if (lake := find(device)) is not None]


def trim_all() -> None:
    """Give what serves nobody back on every device."""
    for lake in all_lakes():
        lake.trim()


def reserved_bytes() -> int:
    """Return what all lakes hold."""
    return sum(lake.stats()["reserved_bytes"] for lake in all_lakes())
