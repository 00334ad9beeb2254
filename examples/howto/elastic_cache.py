"""Decoding with caches that grow and shrink: sequences of any length, memory for what there is.

gmlake run --report examples/howto/elastic_cache.py
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import random

import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import gmlake

LAYERS, HEADS, SIZE = 4, 4, 64  # of the model: layers, heads, numbers in a head
LONGEST = 4096  # tokens of a sequence
AT_ONCE = 8  # sequences


class Sequence:
    """A sequence with a cache of its own: a row for each token, keys and values of all layers."""

    def __init__(self, prompt: int, end: int) -> None:
        """Reserve addresses for the longest sequence, and take memory for the prompt."""
        self.cache = gmlake.elastic((LONGEST, LAYERS, 2, HEADS, SIZE), torch.bfloat16, rows=prompt)
        self.cache.tensor.normal_()
        self.end = end

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Decode one token [heads, size] through all layers."""
        rows = self.cache.resize(self.cache.rows + 1)
        for layer in range(LAYERS):
            rows[-1, layer] = tokens
            keys, values = rows[:, layer].unbind(1)  # [tokens, heads, size] each
            tokens = attention(
                tokens[:, None], keys.transpose(0, 1), values.transpose(0, 1)
            ).squeeze(1)
        return tokens

    def restart(self, prompt: int, end: int) -> None:
        """Begin another sequence: what the old one had is free at once."""
        self.cache.resize(0)
        self.cache.resize(prompt).normal_()
        self.end = end


@torch.inference_mode()
def main() -> None:
    """Decode so many sequences at a time; where one ends, another begins."""
    lengths = random.Random(0)  # noqa: S311 (no secret)

    def draw() -> tuple[int, int]:
        prompt = lengths.randint(16, LONGEST // 2)
        return prompt, prompt + lengths.randint(16, LONGEST // 4)

    token = torch.ones(HEADS, SIZE, dtype=torch.bfloat16, device="cuda")
    sequences = [Sequence(*draw()) for _ in range(AT_ONCE)]
    for _ in range(300):
        for one in sequences:
            one.step(token)
            if one.cache.rows == one.end:
                one.restart(*draw())
    held = sum(one.cache.memory_bytes for one in sequences)
    most = sum(one.cache.whole.nbytes for one in sequences)
    print(f"{AT_ONCE} caches hold {held >> 20} MiB; of the longest each: {most >> 20} MiB")


if __name__ == "__main__":
    main()
