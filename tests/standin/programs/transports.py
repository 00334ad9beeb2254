"""Stitched tensors that collectives are given; prints what was seen as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import tempfile
import warnings
from typing import Any

import torch
import torch.distributed as dist

import gmlake
from gmlake.pytorch import compat

MIB = 1 << 20


def scattered() -> list[torch.Tensor]:
    """Return tensors with free memory between them."""
    pieces = [torch.empty(24 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del pieces[::2]
    return pieces


def make() -> torch.Tensor:
    """Return a tensor of 64 MiB."""
    return torch.ones(16 * MIB, device="cuda")


class Doubled(torch.autograd.Function):
    """Sends its gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Return the double."""
        return given * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """Send a stitched tensor."""
        dist.all_reduce(before)
        return gradient * 2


gmlake.enable()
kept = scattered()
before = make()
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    dist.all_reduce(before)
    with warnings.catch_warnings(record=True) as said, gmlake.watch_transports() as found:
        warnings.simplefilter("always")
        with gmlake.exportable():
            whole = make()
        dist.all_reduce(whole)
        none_yet = len(found)
        del before
        before = make()
        for _ in range(3):
            dist.all_reduce(before[100:])
        dist.broadcast(before, 0)
        Doubled.apply(torch.ones(4, device="cuda", requires_grad=True)).sum().backward()
    dist.all_reduce(before)
    dist.destroy_process_group()

print(
    json.dumps(
        {
            "none": none_yet,
            "stitched": not gmlake.is_exportable(before),
            "found": [[one.operator, one.sent, one.made, one.size_bytes] for one in found],
            "said": [str(one.message) for one in said if " sends a tensor " in str(one.message)],
            "history": compat.is_recording_history(),
        }
    )
)
