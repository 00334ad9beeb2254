"""Trains a compiled model, without CUDA graphs and with them; prints what was seen as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
from tests.standin.accounting import reserved_bytes
from tests.standin.training import memory_calls
from torch import nn

from gmlake.standin import control

KERNELS = ("cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")


def train(mode: str) -> dict[str, Any]:
    """Train a small network for five steps; return what the last one did."""
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    compiled = torch.compile(model, mode=mode)
    allocated = []
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        control.reset_calls()
        compiled(torch.randn(64, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        allocated.append(torch.cuda.memory_allocated())
    calls = control.calls()
    segments = torch.cuda.memory_snapshot()
    return {
        "allocated": allocated,
        "kernels": {name: calls[name] for name in KERNELS},
        "memory_calls": memory_calls(calls),
        "private_bytes": sum(
            segment["total_size"] for segment in segments if segment["segment_pool_id"] != (0, 0)
        ),
    }


def main() -> None:
    """Train in both ways, then give everything back."""
    warnings.simplefilter("ignore")  # advice about speed
    torch.set_float32_matmul_precision("high")
    results: dict[str, Any] = {mode: train(mode) for mode in ("default", "reduce-overhead")}
    torch._dynamo.reset()  # noqa: SLF001 (its only name)
    results["reserved_at_end"] = reserved_bytes()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
