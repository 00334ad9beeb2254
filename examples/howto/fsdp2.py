"""FSDP2 under gmlake: each process has a device, and says at its end how it was served.

gmlake run --report -m torch.distributed.run --nproc-per-node 2 examples/howto/fsdp2.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

BACKEND = os.environ.get("BACKEND", "nccl")  # gloo where there is no NCCL
WIDTH, BATCH, LENGTH = 256, 4, 64


def main() -> None:
    """Train a model whose weights, gradients and states are divided among the processes."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group(BACKEND)

    layers = [nn.TransformerEncoderLayer(WIDTH, 4, batch_first=True) for _ in range(4)]
    model = nn.Sequential(*layers).to(device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    for step in range(6):
        batch = torch.randn(BATCH, LENGTH * (1 + step % 3), WIDTH, device=device)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
