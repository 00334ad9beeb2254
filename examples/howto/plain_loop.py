"""A training loop of your own: gmlake on, a recording of it, and where the memory went.

python examples/howto/plain_loop.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from torch import nn

import gmlake


def main() -> None:
    """Train on batches of varying length, and save what the memory did."""
    gmlake.enable()

    model = nn.TransformerEncoderLayer(256, 4, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with gmlake.record() as recording:
        for step in range(8):
            batch = torch.randn(4, 64 * (1 + step % 3), 256, device="cuda")
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    print(gmlake.memory_summary())
    recording.snapshot.save("memory.pickle")


if __name__ == "__main__":
    main()
