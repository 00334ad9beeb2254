"""DeepSpeed's ZeRO under gmlake: each process has a device, and says at its end how it was served.

gmlake run --report -m torch.distributed.run --nproc-per-node 2 examples/howto/deepspeed_zero.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import os

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

BACKEND = os.environ.get("BACKEND", "nccl")  # gloo where there is no NCCL
BUCKET = 1_000_000  # elements; DeepSpeed's own size is made for large models
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": BUCKET,
        "allgather_bucket_size": BUCKET,
    },
}


def main() -> None:
    """Train a model whose gradients and states are divided among the processes."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(BACKEND)
    deepspeed.init_distributed(BACKEND)

    layers = [nn.TransformerEncoderLayer(256, 4, batch_first=True) for _ in range(4)]
    engine, *_ = deepspeed.initialize(model=nn.Sequential(*layers), config=CONFIG)
    for step in range(6):
        shape = 4, 64 * (1 + step % 3), 256
        batch = torch.randn(shape, device=engine.device, dtype=torch.bfloat16)
        engine.backward(engine(batch).square().mean())
        engine.step()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
