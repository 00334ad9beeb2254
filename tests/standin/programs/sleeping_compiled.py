"""Trains models in mode="reduce-overhead" in and outside of regions that sleep; prints JSON.

Kernels compute nothing, so bytes are written by hand. They are real.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
import warnings
from typing import Any

import torch
from tests.standin.training import memory_calls
from torch import nn

import gmlake
from gmlake.standin import control


def numbers(like: torch.Tensor, first: int) -> torch.Tensor:
    return torch.arange(first, first + like.numel(), dtype=like.dtype).reshape(like.shape)


def held(name: str) -> int:
    """Return what a region holds, in bytes."""
    return sum(each.reserved_bytes for each in gmlake.regions() if each.name == name)


def private_bytes() -> int:
    """Return the size of all private pools, wherever they lie."""
    return sum(
        int(segment["total_size"])
        for segment in torch.cuda.memory_snapshot()
        if segment["segment_pool_id"] != (0, 0)
    )


class Trained:
    """A network, compiled, and its static input."""

    def __init__(self, width: int) -> None:
        self.model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.model.cuda()
        self.compiled = torch.compile(self.model, mode="reduce-overhead")
        self.input = torch.zeros(256, width, device="cuda")

    def forward(self) -> torch.Tensor:
        """Begin a step."""
        torch.compiler.cudagraph_mark_step_begin()
        result: torch.Tensor = self.compiled(self.input)
        return result

    def step(self) -> list[int]:
        """Take a step; return the addresses of its result and of a gradient."""
        result = self.forward()
        result.sum().backward()
        place = result.data_ptr()
        gradients = [each.grad for each in self.model.parameters()]
        self.model.zero_grad()
        return [place, *(each.data_ptr() for each in gradients if each is not None)]


def train(*, everywhere: bool) -> dict[str, Any]:
    """Train in a region; sleep between two steps, and between a forward pass and its backward."""
    name = "everywhere" if everywhere else "own"
    seen: dict[str, Any] = {}
    region = gmlake.region(name, backup="cpu", graphs=True, everywhere=everywhere)
    before = private_bytes()
    with region:
        trained = Trained(256 if everywhere else 320)
        for _ in range(4):
            places = trained.step()
    pool = private_bytes() - before
    seen["pool_is_the_regions"] = held(name) >= pool if everywhere else held(name) > 0
    weights = list(trained.model.parameters())
    for first, each in enumerate(weights):
        each.data.copy_(numbers(each, first))
    result = trained.forward()
    result.data.copy_(numbers(result, 77))
    gmlake.sleep(name)
    gmlake.wake(name)
    seen["parameters"] = all(
        torch.equal(each.cpu(), numbers(each, first)) for first, each in enumerate(weights)
    )
    seen["result"] = torch.equal(result.detach().cpu(), numbers(result, 77))
    result.sum().backward()
    trained.model.zero_grad()
    del result
    control.reset_calls()
    seen["addresses"] = trained.step() == places
    calls = control.calls()
    seen["launches"] = calls["cudaGraphLaunch"]
    seen["recorded_again"] = calls["cudaGraphInstantiate"]
    seen["memory_calls"] = memory_calls(calls)

    gmlake.sleep(name)
    other = Trained(128)  # which nothing else compiles
    for _ in range(4):
        outside = other.step()
    gmlake.wake(name)
    seen["outside"] = other.step() == outside and trained.step() == places
    del trained, other, weights, each
    torch._dynamo.reset()  # noqa: SLF001 (its only name)
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001
    torch.cuda.empty_cache()
    seen["given_back"] = held(name)
    return seen


def main() -> int:
    """Print what was seen."""
    warnings.simplefilter("ignore")  # advice about speed
    torch.set_float32_matmul_precision("high")
    gmlake.enable()
    # cuBLAS keeps its workspace where it was first used: outside, for what trains meanwhile.
    torch.zeros(8, 8, device="cuda").matmul(torch.zeros(8, 8, device="cuda"))
    print(json.dumps({str(every): train(everywhere=every) for every in (False, True)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
