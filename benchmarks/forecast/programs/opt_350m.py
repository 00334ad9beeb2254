"""OPT-350M, weights and states in bfloat16, with AdamW."""

# PyTorch is typed in part only.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse

import torch
from transformers import OPTConfig, OPTForCausalLM


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = OPTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        ffn_dim=4096,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )
    with torch.device("cuda"):
        model = OPTForCausalLM(config).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    model.train()
    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 2048), device="cuda")
        mask = torch.ones_like(tokens)
        loss = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
