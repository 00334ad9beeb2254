"""A training script as a user has one, for `gmlake forecast`: what it does is said by options."""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

WIDTH = 256


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--batch-size", type=int, default=int(os.environ.get("BATCH", "64")))
    add("--seen", help="a file: the batch, and PyTorch's own figures after each step")
    add("--checkpoint", help="a file: written after the training")
    add("--iterations", type=int, default=20)
    add("--accumulate", type=int, default=1, help="backward passes of a step")
    add("--optimizers", type=int, default=1, help="that take turns")
    add("--growing", action="store_true", help="each batch is larger than the one before")
    add("--plain", action="store_true", help="an optimizer without state")
    add("--without-optimizer", action="store_true")
    return parser.parse_args()


def note(path: str | None, figures: list[dict[str, Any]], batch: int) -> None:
    """Write down what PyTorch says of its memory, and the environment."""
    figures.append(
        {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "capacity": torch.cuda.mem_get_info()[1],
            "devices": torch.cuda.device_count(),
            "name": torch.cuda.get_device_name(),
            "capability": list(torch.cuda.get_device_capability()),
        }
    )
    if path:
        own = {name: text for name, text in os.environ.items() if name.startswith("GMLAKE_")}
        Path(path).write_text(
            json.dumps({"steps": figures, "batch": batch, "variables": own}), encoding="utf-8"
        )


def main() -> None:
    """Train."""
    given = options()
    model: Any = nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    ).cuda()
    parts = [model] if given.optimizers == 1 else [model[0], model[2]]
    kind: Any = torch.optim.SGD if given.plain else torch.optim.AdamW
    optimizers = [kind(part.parameters()) for part in parts]
    figures: list[dict[str, Any]] = []
    for iteration in range(given.iterations):
        optimizer = optimizers[iteration % len(optimizers)]
        batch = given.batch_size * (iteration + 1 if given.growing else 1)
        for _ in range(given.accumulate):
            rows = torch.randn(batch, WIDTH, device="cuda")
            model(rows).square().mean().backward()
        note(given.seen, figures, given.batch_size)
        if not given.without_optimizer:
            optimizer.step()
        model.zero_grad()
    if given.checkpoint:
        torch.save(model.state_dict(), given.checkpoint)
    print("trained", len(figures))


main()
