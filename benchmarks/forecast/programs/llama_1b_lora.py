"""Adapters of low rank (LoRA) for a Llama of 1.2 billion frozen parameters in bfloat16."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig


class Adapted(nn.Module):
    """A frozen linear layer, and a trained one of low rank that is added to it."""

    def __init__(self, base: nn.Linear, rank: int = 16, scale: float = 2.0) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, device="cuda")
        self.up = nn.Linear(rank, base.out_features, bias=False, device="cuda")
        self.dropout = nn.Dropout(0.05)
        self.scale = scale
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def forward(self, given: Tensor) -> Tensor:
        added = self.up(self.down(self.dropout(given).float()))
        result: Tensor = self.base(given) + (added * self.scale).to(given.dtype)
        return result


def main() -> None:
    """Train the adapters of all attention layers on random tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.requires_grad_(requires_grad=False)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
    trained = [part for part in model.parameters() if part.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4)

    model.train()
    for step in range(options.steps):
        tokens = torch.randint(config.vocab_size, (options.batch, 1024), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
