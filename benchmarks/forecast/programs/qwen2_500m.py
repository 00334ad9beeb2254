"""Qwen2-0.5B in bfloat16, texts of varying lengths, four batches to an update of AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import random

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    options = parser.parse_args()

    torch.manual_seed(0)
    draw = random.Random(0)  # noqa: S311
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    model.train()
    for step in range(options.steps):
        optimizer.zero_grad()
        for _ in range(options.accumulate):
            shape = (options.batch, draw.randint(256, 1536))
            tokens = torch.randint(config.vocab_size, shape, device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss / options.accumulate
            loss.backward()
        optimizer.step()
        print(f"step {step}: {shape[1]} tokens, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
