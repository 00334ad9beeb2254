#!/usr/bin/env python3
"""Train a GPT under gmlake, each step with another sequence length, and save what its memory did.

    python examples/see_training.py
    gmlake view see_training.pickle --plan --replay all

Without a GPU, on the stand-in, where kernels compute nothing and memory is what it would be:

    python -m gmlake.standin --capacity 80GiB examples/see_training.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    import torch
    from train_gpt import GPT, SIZES, language_loss, random_batch
except ImportError as problem:
    sys.exit(f"see_training: {problem}; install it with: pip install torch")

import gmlake

PARTS_OF_CONTEXT = (2, 1, 3, 4, 3, 1)
"""Quarters of the model's context: how long the sequences of each step are."""


def train(size: str, batch: int, device: torch.device) -> tuple[GPT, torch.optim.Optimizer]:
    """Make a model, train it for a few steps, and return it with its optimizer."""
    config = SIZES[size]
    model = GPT(config)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for quarters in PARTS_OF_CONTEXT:
        tokens = random_batch(config, batch, quarters * config.context // 4, device)
        optimizer.zero_grad()
        language_loss(model, tokens).backward()
        optimizer.step()
    return model, optimizer


def main() -> None:
    """Record a training from before its model is made, and save the recording."""
    parser = argparse.ArgumentParser(
        description="Train a GPT under gmlake and save what its memory did.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    parser.add_argument("--batch", type=int, default=4, help="sequences per step")
    parser.add_argument("-o", "--output", type=Path, default=Path("see_training.pickle"))
    options = parser.parse_args()
    gmlake.enable()
    device = torch.device("cuda")
    train("tiny", 1, device)  # so that what PyTorch loads at first does not stretch the picture
    with gmlake.record() as recording:
        held = train(options.size, options.batch, device)
    del held  # which was live until the recording ended
    seen = recording.snapshot
    if not seen.devices:
        sys.exit("see_training: nothing was recorded, since there is no CUDA device")
    print(seen)
    seen.save(options.output)
    print(f"see it: gmlake view {options.output} --plan --replay all")


if __name__ == "__main__":
    main()
