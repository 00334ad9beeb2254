"""One rank of a job, for `gmlake forecast --ranks`: the argument names a function below."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 1024


def network() -> Any:
    """Return two layers of 4 MiB each."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()


def train(model: Any) -> None:
    """Train until the forecast ends it."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        model(torch.randn(64, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def alone() -> None:
    """Train what the others train, without a process group."""
    train(network())


def replicated() -> None:
    """DistributedDataParallel, with its default options."""
    dist.init_process_group("nccl")
    train(nn.parallel.DistributedDataParallel(network()))


def sharded() -> None:
    """FSDP2: each rank holds its part."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl")
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    train(fully_shard(model))


def talking(path: str) -> None:
    """Write down what the ranks say to each other."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, {"rank": rank})
    sent: list[Any] = ["of mine"]
    dist.broadcast_object_list(sent, src=0)
    collected: list[Any] = [None] * world
    dist.gather_object("mine", collected if rank == 0 else None)
    received: list[Any] = [None]
    dist.scatter_object_list(received, ["first"] * world, src=0)
    pair = dist.new_group([rank, (rank + 1) % world])
    mesh: Any = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("dp", "tp"))
    ones = torch.ones(4, device="cuda")
    dist.all_reduce(ones, group=pair)
    dist.barrier()
    Path(path).write_text(
        json.dumps(
            {
                "rank": rank,
                "world": world,
                "gathered": gathered,
                "sent": sent,
                "collected": collected,
                "received": received,
                "pair": dist.get_world_size(pair),
                "dp": mesh["dp"].size(),
                "tp": mesh["tp"].get_local_rank(),
            }
        ),
        encoding="utf-8",
    )


globals()[sys.argv[1]](*sys.argv[2:])
