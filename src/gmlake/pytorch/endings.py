"""The end of a program whose backward passes ran hooks of ours."""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from functools import cache

import torch

from gmlake.pytorch import compat


@cache
def settle_at_exit() -> None:
    """Let the threads of PyTorch's backward passes drop our hooks before the interpreter ends.

    A thread drops a pass, and what Python put into it, some time after backward() has returned.
    Before CPython 3.14 the process is terminated if it asks for the interpreter while that ends.
    """
    if sys.version_info < (3, 14):
        atexit.register(_settle)


def _settle() -> None:
    """Run a pass without hooks on each device in use: who begins one has dropped the last one."""
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        if compat.is_in_use(device):
            with suppress(Exception), torch.inference_mode(mode=False), torch.enable_grad():
                compat.run_backward(torch.ones((), device=f"cuda:{device}", requires_grad=True))
