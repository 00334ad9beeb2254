"""Lets gmlake refuse memory, in every kind of thread, and prints what a script sees.

Two devices of 80 GiB each.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake import Lake, _core

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_MUCH = 1 << 40


def refuse(device: str = "cuda") -> None:
    """Ask for what no device has."""
    torch.empty(TOO_MUCH, dtype=torch.uint8, device=device)


class RefusedBackward(torch.autograd.Function):
    """Runs out of memory on a thread of autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return something else than x."""
        del ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Ask for what no device has."""
        del ctx
        refuse(str(gradient.device))
        return gradient


def what(function: Callable[[], object]) -> list[str]:
    """Return the name of the exception's class and its text."""
    try:
        function()
    except RuntimeError as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def refuse_in_python_backward(device: str = "cuda") -> None:
    """Run out of memory in a backward written in Python."""
    x = torch.ones(4, device=device, requires_grad=True)
    RefusedBackward.apply(x).sum().backward()


def refuse_in_backward() -> None:
    """Run out of memory in PyTorch's own backward, where no Python runs."""
    x = torch.ones(4, device="cuda", requires_grad=True)
    gradient = torch.ones(1, dtype=torch.float64, device="cuda").expand(1 << 36, 4)
    x.expand(1 << 36, 4).to(torch.float64).backward(gradient)


def held_by_process() -> int:
    """Return the bytes of host memory in use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(function: Callable[[], object], times: int) -> int:
    """Return by how much host memory grows when a refusal is repeated."""
    for _ in range(times // 4):
        what(function)
    before = held_by_process()
    kinds = {what(function)[0] for _ in range(times)}
    return held_by_process() - before if kinds == {"OutOfMemoryError"} else -1


def in_threads(count: int, times: int) -> list[str]:
    """Return the kinds of exceptions that several threads see on two devices."""
    kinds: set[str] = set()

    def work(device: str) -> None:
        for _ in range(times):
            kinds.add(what(lambda: refuse(device))[0])
            kinds.add(what(lambda: refuse_in_python_backward(device))[0])

    threads = [threading.Thread(target=work, args=(f"cuda:{n % 2}",)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(kinds)


def copy_both_ways(older: torch.Tensor) -> None:
    """Copy between devices what is older and what is younger than the other device's lake.

    Where a device has no access to the other's memory, this breaks a rule of CUDA.
    """
    there = older[:1000].to("cuda:1")
    there.to("cuda:0")
    younger = torch.empty(30 << 20, dtype=torch.uint8, device="cuda:0")
    younger.to("cuda:1").to("cuda:0")
    torch.cuda.synchronize()


def lake_of(device: int) -> Lake:
    """Return the lake that PyTorch uses there."""
    lake = _core.torch_lake(Lake, device)
    assert lake is not None
    return lake


def main() -> None:
    """Do it all in order."""
    results: dict[str, Any] = {}
    gmlake.enable()
    held = torch.ones(3 << 30, dtype=torch.uint8, device="cuda")
    live = lake_of(0).stats()["live_blocks"]
    results["main"] = what(refuse)
    results["other_device"] = what(lambda: refuse("cuda:1"))
    copy_both_ways(held)
    results["python_backward"] = what(refuse_in_python_backward)
    results["backward"] = what(refuse_in_backward)
    results["endless"] = what(lambda: torch.empty(1 << 60, dtype=torch.uint8, device="cuda"))
    results["impossible"] = what(lambda: torch.cuda.caching_allocator_alloc(1, 0, (1 << 64) - 1))
    torch.cuda.set_per_process_memory_fraction(0.5)
    results["limited"] = what(lambda: torch.empty(50 << 30, dtype=torch.uint8, device="cuda"))
    torch.cuda.set_per_process_memory_fraction(1.0)
    results["fits"] = what(lambda: torch.empty(50 << 30, dtype=torch.uint8, device="cuda"))
    results["growth"] = growth(refuse, 4000)
    results["growth_in_backward"] = growth(refuse_in_python_backward, 1000)
    results["threads"] = in_threads(4, 250)
    # An autograd thread that lets go of a Python error while Python ends would end the process
    # with an abort, whoever the allocator is. It has done so before it does something else.
    x = torch.ones(4, device="cuda", requires_grad=True)
    (x * 2).sum().backward()
    for device in range(2):
        x = torch.ones(4, device=f"cuda:{device}", requires_grad=True)
        (x * 2).sum().backward()
    del x
    results["left_blocks"] = lake_of(0).stats()["live_blocks"] - live
    lake_of(0).check()
    del held
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
