"""Copies between a device of gmlake's and one that only PyTorch's own allocator has memory on."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys

import torch

import gmlake


def numbers(first: int = 0) -> torch.Tensor:
    """Return numbers on the host."""
    return torch.arange(first, first + 1_000_000, dtype=torch.float32)


def asked() -> dict[str, bool]:
    """Copy from a device that PyTorch uses first when gmlake has memory on the other one."""
    gmlake.enable()
    with gmlake.exportable():
        whole = torch.empty(1_000_000, device="cuda:1")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool, device=0):
        theirs = numbers().to("cuda:0")
    whole.copy_(theirs)
    return {"later": torch.equal(whole.cpu(), numbers())}


def known() -> dict[str, bool]:
    """Copy between devices of which PyTorch knows that the one reaches the other."""
    early = numbers().to("cuda:0")
    early.to("cuda:1")
    gmlake.enable()
    ours = numbers(1).to("cuda:1")
    found = {"there": torch.equal(early.to("cuda:1").cpu(), numbers())}
    early.copy_(ours)
    found["back"] = torch.equal(early.cpu(), numbers(1))
    with gmlake.region("late"):
        inside = numbers(2).to("cuda:1")
    inside.copy_(early)
    found["region"] = torch.equal(inside.cpu(), numbers(1))
    return found


if __name__ == "__main__":
    print(json.dumps(asked() if sys.argv[1] == "asked" else known()))
