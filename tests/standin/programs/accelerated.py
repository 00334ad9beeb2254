"""A loop of Accelerate that looks for the largest batch that fits; prints what it saw as JSON.

It is meant for a device of 256 MiB, on which the first ones do not fit.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size
from torch import nn

WIDTH = 1024
LARGEST = 12288


def main() -> None:
    """Train with half the batch as long as memory runs out, and print."""
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    tried: list[int] = []
    losses: list[float] = []

    @find_executable_batch_size(starting_batch_size=LARGEST)  # type: ignore[untyped-decorator]
    def train(batch_size: int) -> None:
        tried.append(batch_size)
        accelerator.free_memory()
        losses.clear()
        layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 16))
        optimizer = torch.optim.AdamW(layers.parameters())
        classes = torch.zeros(2 * batch_size, dtype=torch.long)
        rows = torch.utils.data.TensorDataset(
            torch.randn(2, WIDTH).repeat(batch_size, 1),
            classes,
        )
        loader = torch.utils.data.DataLoader(rows, batch_size=batch_size)
        model: Any
        model, optimizer, loader = accelerator.prepare(layers, optimizer, loader)
        for inputs, expected in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), expected)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())

    train()
    results = {
        "backend": torch.cuda.get_allocator_backend(),
        "losses": losses,
        "tried": tried,
        "stats": torch.cuda.memory_stats(),
    }
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
