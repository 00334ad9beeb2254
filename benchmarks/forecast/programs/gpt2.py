"""GPT-2 in float32 (TF32 products), with AdamW and a cosine schedule."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--length", type=int, default=1024)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = GPT2LMHeadModel(GPT2Config()).to("cuda")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1)
    scheduler = CosineAnnealingLR(optimizer, T_max=options.steps)

    for step in range(options.steps):
        tokens = torch.randint(50257, (options.batch, options.length), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
