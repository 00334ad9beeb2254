"""DistilGPT-2 in float16 with a GradScaler, with Adam."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from torch.amp.grad_scaler import GradScaler
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(n_layer=6)
    model = GPT2LMHeadModel(config).to("cuda").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    scaler = GradScaler("cuda")

    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 512), device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(input_ids=tokens, labels=tokens).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step}: loss {loss.item():.4f}, scale {scaler.get_scale():.0f}")


if __name__ == "__main__":
    main()
