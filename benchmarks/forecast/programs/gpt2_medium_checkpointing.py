"""GPT-2 Medium in bfloat16 with gradient checkpointing, AdamW, two batches to an update."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    with torch.device("cuda"):
        model = GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    decayed = [part for part in model.parameters() if part.dim() >= 2]  # noqa: PLR2004
    others = [part for part in model.parameters() if part.dim() < 2]  # noqa: PLR2004
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))

    for step in range(options.steps):
        total = 0.0
        for _ in range(options.accumulate):
            tokens = torch.randint(config.vocab_size, (options.batch, 1024)).cuda()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss / options.accumulate
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {total:.4f}")


if __name__ == "__main__":
    main()
