"""Full mode: gmlake is PyTorch's allocator, from before CUDA starts until the process ends."""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
from typing import Final

import torch

from gmlake import _core
from gmlake.allocator_conf import read_allocator_conf
from gmlake.pytorch import compat, device, notices, patches, streams

SETTERS: Final = {
    "init": "set_init_fn",
    "empty_cache": "set_reset_fn",
    "memory_fraction": "set_memory_fraction_fn",
    "base": "set_base_alloc_fn",
    "record_stream": "set_record_stream_fn",
    "begin_pool": "set_begin_allocate_to_pool",
    "end_pool": "set_end_allocate_to_pool_fn",
    "release_pool": "set_release_pool",
}
_installed: list[object] = []  # PyTorch's object for our functions, never let go


def is_installed() -> bool:
    """Whether gmlake is this process's allocator."""
    return bool(_installed)


def obstacle() -> str:
    """Say why this process cannot begin full mode now; "" if it can."""
    if torch.cuda.is_initialized():
        return "CUDA is in use already, and PyTorch's allocator can be replaced before that only"
    if device.backend() == "pluggable":
        return "another allocator was put into PyTorch by change_current_allocator()"
    reason = _core.torch_find_exceptions()
    return f"PyTorch's exceptions cannot be raised: {reason}" if reason else ""


def install() -> None:
    """Make gmlake the allocator, for good. pre: there is no obstacle."""
    hooks = _core.torch_hooks()
    allocator = compat.foreign_allocator(hooks["alloc"], hooks["free"])
    for hook, setter in SETTERS.items():
        getattr(allocator, setter)(hooks[hook])
    replaced = device.backend()
    compat.change_allocator(allocator)
    _installed.append(allocator)
    patches.install()
    streams.watch()
    fraction = read_allocator_conf(os.environ).fraction
    if fraction is not None:
        compat.when_cuda_starts(lambda: _limit(fraction))
    if replaced != "native":
        notices.once(
            "backend",
            f"PYTORCH_ALLOC_CONF asks for backend:{replaced}, which gmlake serves instead of",
        )


def _limit(fraction: float) -> None:
    for number in range(torch.cuda.device_count()):
        torch.cuda.set_per_process_memory_fraction(fraction, number)
