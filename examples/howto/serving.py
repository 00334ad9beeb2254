"""Serving under gmlake: batches of another size each time, with caches that grow.

gmlake run --report examples/howto/serving.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import random

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=500,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
)


@torch.inference_mode()
def answer(model: LlamaForCausalLM, prompts: torch.Tensor, length: int) -> None:
    """Read the prompts [n, tokens], and write an answer to each, token by token."""
    cache = DynamicCache()
    logits = model(prompts, past_key_values=cache, use_cache=True).logits
    for _ in range(length):
        tokens = logits[:, -1:].argmax(-1)
        logits = model(tokens, past_key_values=cache, use_cache=True).logits


def main() -> None:
    """Answer some batches; the same numbers each time."""
    sizes = random.Random(0)  # noqa: S311 (no secret)
    with torch.device("cuda"):
        model = LlamaForCausalLM(CONFIG).eval()
    for _ in range(10):
        shape = sizes.randint(1, 16), sizes.randint(16, 256)
        answer(model, torch.ones(shape, dtype=torch.long, device="cuda"), sizes.randint(4, 16))
    live, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print(f"at the peak: {live >> 20} MiB live, {reserved >> 20} MiB reserved")


if __name__ == "__main__":
    main()
