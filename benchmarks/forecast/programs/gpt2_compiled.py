"""GPT-2 compiled, in bfloat16, with a fused AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Train on random tokens; the loss is computed outside the compiled model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    config = GPT2Config(n_layer=6, use_cache=False)
    model = GPT2LMHeadModel(config).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)

    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 1025), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = compiled(input_ids=tokens[:, :-1]).logits
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
