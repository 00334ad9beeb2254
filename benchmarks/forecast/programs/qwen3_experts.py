"""A mixture of 16 experts (Qwen3-MoE), of which four serve a token, in bfloat16, with AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=50304,
        hidden_size=1024,
        moe_intermediate_size=768,
        num_experts=16,
        num_experts_per_tok=4,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=64,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3MoeForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, fused=True)

    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 1024), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
