"""torch.compile under gmlake, also with CUDA graphs.

gmlake run --report examples/howto/compiled.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from torch import nn

WIDTH, BATCH = 512, 256


def train(mode: str) -> None:
    """Train a compiled model for some steps."""
    layers = nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    ).cuda()
    model = torch.compile(layers, mode=mode)
    optimizer = torch.optim.AdamW(layers.parameters())
    for _ in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        loss = model(torch.randn(BATCH, WIDTH, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"{mode}: {torch.cuda.max_memory_reserved() >> 20} MiB reserved at the peak")


def main() -> None:
    """Compile with and without CUDA graphs."""
    train("default")
    train("reduce-overhead")


if __name__ == "__main__":
    main()
