"""A loop as in reinforcement learning under gmlake: generate, then train on what came out.

gmlake run --report examples/howto/rl_loop.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=500,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
)


@torch.no_grad()
def generate(model: LlamaForCausalLM, prompts: torch.Tensor, length: int) -> torch.Tensor:
    """Return the prompts [n, tokens], each with an answer of that length behind it."""
    cache = DynamicCache()
    texts, tokens = prompts, prompts
    for _ in range(length):
        logits = model(tokens, past_key_values=cache, use_cache=True).logits
        tokens = logits[:, -1:].argmax(-1)
        texts = torch.cat([texts, tokens], dim=1)
    return texts


def main() -> None:
    """Take some rounds, each with answers of another length."""
    with torch.device("cuda"):
        model = LlamaForCausalLM(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters())
    prompts = torch.ones(8, 32, dtype=torch.long, device="cuda")
    for number in range(6):
        texts = generate(model, prompts, 8 + 16 * (number % 3))
        loss = model(input_ids=texts, labels=texts).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"round {number}: {torch.cuda.memory_reserved() >> 20} MiB reserved")


if __name__ == "__main__":
    main()
