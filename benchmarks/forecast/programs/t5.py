"""T5-Base in bfloat16, with Adafactor and texts of varying lengths."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import random

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor


def main() -> None:
    """Train on random pairs of texts, padded to the longest of their batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    draw = random.Random(0)  # noqa: S311
    config = T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
    )
    with torch.device("cuda"):
        model = T5ForConditionalGeneration(config)
    optimizer = Adafactor(
        model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False, warmup_init=False
    )

    model.train()
    for step in range(options.steps):
        lengths = [draw.randint(100, 512) for _ in range(options.batch)]
        source = torch.randint(config.vocab_size, (options.batch, max(lengths)))
        mask = torch.zeros_like(source)
        for row, length in enumerate(lengths):
            mask[row, :length] = 1
        target = torch.randint(config.vocab_size, (options.batch, draw.randint(64, 128)))
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(
                input_ids=source.cuda(), attention_mask=mask.cuda(), labels=target.cuda()
            ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {source.shape[1]} tokens, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
