"""A training loop of your own: gmlake on, a recording of it, and where the memory went.

python examples/howto/plain_loop.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from torch import nn

import gmlake

WIDTH, BATCH, LENGTH = 256, 4, 64


def main() -> None:
    """Train on batches of varying length, and save what the memory did."""
    gmlake.enable()

    model = nn.TransformerEncoderLayer(WIDTH, 4, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with gmlake.record() as recording:
        for step in range(8):
            batch = torch.randn(BATCH, LENGTH * (1 + step % 3), WIDTH, device="cuda")
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    print(gmlake.memory_summary())
    recording.snapshot.save("memory.pickle")


if __name__ == "__main__":
    main()
