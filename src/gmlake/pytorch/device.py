"""Queries about PyTorch in this process that do not start CUDA, so that a fork stays possible."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import os

import torch

from gmlake.pytorch import compat


def absence() -> str:
    """Say why nothing can be served: no CUDA in PyTorch, no driver, no device; else "".

    Asking CUDA itself would start it, so a driver that later finds no device goes unnoticed.
    """
    if not compat.may_have_cuda():
        return "this PyTorch was built without CUDA"
    count = device_count()
    if count == 0:
        return "no CUDA device is visible"
    if count is None and not _has_driver():
        return "the CUDA driver, libcuda.so.1, is not installed"
    return ""


def device_count() -> int | None:
    """Return how many devices PyTorch will see; None if only starting CUDA would tell."""
    if torch.cuda.is_initialized():
        return int(torch.cuda.device_count())
    count = compat.device_count()
    return count if count >= 0 else None


def backend() -> str:
    """Return which allocator PyTorch has: "native", "cudaMallocAsync" or "pluggable"."""
    return str(torch.cuda.get_allocator_backend())


def place() -> tuple[int, int]:
    """Return the rank and the world size of this process."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return int(rank) if rank.isdecimal() else 0, int(world) if world.isdecimal() else 1


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
