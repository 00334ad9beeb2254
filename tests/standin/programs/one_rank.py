"""NCCL with one rank, as jobs of one device use it; prints what was seen as JSON.

Its argument is a file through which two ranks would meet, of which this one is alone.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from tests.standin.training import Trainer
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def collected() -> list[bool]:
    """Return whether each collective gives what the rank has."""
    given = torch.arange(1000.0).cuda()
    wanted = given.cpu()
    found = [torch.zeros_like(given) for _ in range(4)]
    found[0].copy_(given)
    dist.all_reduce(found[0], dist.ReduceOp.AVG)
    dist.all_gather_into_tensor(found[1], given)
    dist.reduce_scatter_tensor(found[2], given)
    dist.all_gather([found[3]], given)
    dist.broadcast(given, 0)
    dist.barrier()
    return [torch.equal(each.cpu(), wanted) for each in (*found, given)]


def trained(kind: str) -> float:
    """Train two steps, of copies or of shares; return the bytes that live, by those of weights."""
    trainer: Any = Trainer()
    if kind == "ddp":
        trainer.model = DistributedDataParallel(trainer.model, device_ids=[0])
    else:
        fully_shard(trainer.model)
        trainer.parameters = list(trainer.model.parameters())
        trainer.optimizer = torch.optim.AdamW(trainer.parameters)
    trainer.step()
    trainer.step()
    torch.cuda.synchronize()
    weights: int = sum(each.numel() for each in trainer.parameters)
    return torch.cuda.memory_allocated() / (4 * weights)


def refusal(store: str) -> str:
    """Return what a rank of two is told."""
    dist.init_process_group(
        "nccl", f"file://{store}-two", timedelta(seconds=20), world_size=2, rank=0
    )
    try:
        dist.all_reduce(torch.ones(1, device="cuda"))
    except RuntimeError as error:
        return str(error)
    return ""


def main() -> None:
    """Print what was seen."""
    store = sys.argv[1]
    dist.init_process_group("nccl", f"file://{store}", world_size=1, rank=0)
    found: dict[str, Any] = {"collected": collected()}
    found["live"] = [trained(kind) for kind in ("ddp", "fsdp")]
    dist.destroy_process_group()
    found["refusal"] = refusal(store)
    print(json.dumps(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
