"""Pythia-410M (GPT-NeoX) in bfloat16, with a fused AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=50304,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=2048,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = GPTNeoXForCausalLM(config)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )

    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 2048), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
