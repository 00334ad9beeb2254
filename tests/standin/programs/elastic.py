"""What torchrun starts on each device: training over gloo; each rank prints what it saw as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for some steps, and print."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("gloo")
    layers = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 16)).cuda()
    model = DistributedDataParallel(layers, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(4):
        inputs = torch.randn(64 * (1 + step % 2), 512, device="cuda")
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    results = {
        "rank": dist.get_rank(),
        "backend": torch.cuda.get_allocator_backend(),
        "losses": losses,
        "stats": torch.cuda.memory_stats(),
        "other_device": torch.cuda.max_memory_allocated(1 - rank),
        "arguments": sys.argv[1:],
    }
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(results) + "\n", end="", flush=True)


if __name__ == "__main__":
    main()
