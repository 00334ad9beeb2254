"""What PyTorch can do in this process, found out without starting CUDA: a fork stays possible."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
from typing import Any

import torch


def absence() -> str:
    """Say why there is nothing to serve: no CUDA in PyTorch, no driver, no device. "" if there is.

    Asking CUDA itself would start it, so a driver that finds no device later passes.
    """
    if torch.version.cuda is None or not hasattr(torch._C, "_cuda_customAllocator"):  # noqa: SLF001
        return "this PyTorch was built without CUDA"
    count = device_count()
    if count == 0:
        return "no CUDA device is visible"
    if count is None and not _has_driver():
        return "the CUDA driver, libcuda.so.1, is not installed"
    return ""


def device_count() -> int | None:
    """Return how many devices PyTorch will see; None where only starting CUDA would tell."""
    if torch.cuda.is_initialized():
        return int(torch.cuda.device_count())
    count: Any = getattr(torch.cuda, "_device_count_nvml", lambda: -1)()
    return int(count) if count >= 0 else None


def backend() -> str:
    """Return which allocator PyTorch has: "native", "cudaMallocAsync" or "pluggable"."""
    return str(torch.cuda.get_allocator_backend())


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
