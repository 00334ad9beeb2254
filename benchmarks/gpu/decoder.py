"""A decode server in miniature: a Llama, its static cache, and a step that a graph can capture."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from gpu.model import Sizes, rotate, turns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

# full: the layers of Llama 3.1 8B, four of them.
SIZES = {
    "full": Sizes(
        layers=4, width=4096, heads=32, pairs=8, inner=14_336, vocab=128_256, longest=1024
    ),
    "tiny": Sizes(layers=2, width=256, heads=4, pairs=2, inner=512, vocab=128_256, longest=256),
}
_OTHERS_BYTES = 64 << 20
_FILLING = 255


@dataclass(frozen=True)
class _Layer:
    """Weights, outputs x inputs."""

    attention: Tensor  # queries, keys and values
    mix: Tensor
    widen: Tensor  # gate and up
    narrow: Tensor


class Decoder:
    """Weights, the keys and values of `longest` positions, and the state of each row.

    All of it is allocated here; a step only needs temporary memory. A row of a batch is a sequence:
    the token it has got last, and the position of that.
    """

    def __init__(self, sizes: Sizes, rows: int) -> None:
        """Make it on the current device, the same each time."""
        self.sizes, self.rows = sizes, rows
        torch.manual_seed(0)
        self.embedding = self._weights(sizes.vocab, sizes.width)
        self.layers = [self._layer() for _ in range(sizes.layers)]
        self.head = self._weights(sizes.vocab, sizes.width)
        shape = (sizes.layers, 2, rows, sizes.pairs, sizes.longest, sizes.head)
        self.cache = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
        self.numbers = torch.arange(max(rows, sizes.longest), device="cuda")
        self.turns = turns_of(sizes, sizes.longest, self.cache.device)
        self.tokens = torch.empty(rows, dtype=torch.long, device="cuda")
        self.places = torch.empty(rows, dtype=torch.long, device="cuda")
        self.begin()

    @staticmethod
    def _weights(outputs: int, inputs: int) -> Tensor:
        drawn = torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda")
        return drawn.mul_(inputs**-0.5)

    def _layer(self) -> _Layer:
        sizes = self.sizes
        return _Layer(
            attention=self._weights(sizes.width + 2 * sizes.pairs * sizes.head, sizes.width),
            mix=self._weights(sizes.width, sizes.width),
            widen=self._weights(2 * sizes.inner, sizes.width),
            narrow=self._weights(sizes.width, sizes.inner),
        )

    def tensors(self) -> list[Tensor]:
        """Return all that is allocated here."""
        layers = [getattr(layer, each.name) for layer in self.layers for each in fields(layer)]
        state = (self.cache, self.numbers, self.turns, self.tokens, self.places)
        return [self.embedding, *layers, self.head, *state]

    def begin(self) -> None:
        """Begin all sequences anew, in the middle of their texts, the same each time."""
        torch.manual_seed(1)
        self.cache.normal_()
        self.tokens.random_(self.sizes.vocab)
        self.places.random_(self.sizes.longest // 4, self.sizes.longest // 2)

    def advance(self, batch: int) -> None:
        """Go on to the next position of the first rows."""
        self.places[:batch] += 1

    def step(self, batch: int) -> None:
        """Replace the tokens of the first rows by those that follow; writes the cache, too."""
        places = self.places[:batch]
        turns = self.turns[:, places, None]
        is_later = self.numbers[: self.sizes.longest] > places[:, None]
        x = functional.embedding(self.tokens[:batch], self.embedding)
        for layer, (keys, values) in zip(self.layers, self.cache, strict=True):
            x = x + self._attend(layer, self._norm(x), turns, is_later, keys, values)
            gate, up = functional.linear(self._norm(x), layer.widen).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer.narrow)
        logits = functional.linear(self._norm(x), self.head)
        self.tokens[:batch] = logits.argmax(dim=-1)

    def _norm(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (self.sizes.width,))

    def _attend(  # noqa: PLR0913, PLR0917 (of one layer)
        self,
        layer: _Layer,
        x: Tensor,
        turns: Tensor,
        is_later: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """Attend from tokens [batch, width] to the positions that are not later."""
        sizes, batch = self.sizes, len(x)
        kept = sizes.pairs * sizes.head
        heads = functional.linear(x, layer.attention).split((sizes.width, kept, kept), dim=-1)
        query, key, value = (each.unflatten(-1, (-1, sizes.head)) for each in heads)
        rows, places = self.numbers[:batch], self.places[:batch]
        keys[rows, :, places] = rotate(key, turns)
        values[rows, :, places] = value
        query = rotate(query, turns).unflatten(1, (sizes.pairs, -1))
        scores = (query @ keys[:batch].mT).float() * sizes.head**-0.5
        shares = scores.masked_fill(is_later[:, None, None], -torch.inf).softmax(dim=-1)
        mixed = (shares.to(x.dtype) @ values[:batch]).flatten(1)
        return functional.linear(mixed, layer.mix)


def decode(
    decoder: Decoder, run: Callable[[int], object], batches: Sequence[int], steps: int
) -> str:
    """Decode from the beginning, each step for a batch drawn at random; return a hash of it.

    Other memory is filled before each step, and read after it: the hash tells of a graph that
    writes to memory which somebody else has.
    """
    decoder.begin()
    drawn = random.Random(0)  # noqa: S311 (no secret)
    seen = hashlib.sha256()
    for _ in range(steps):
        batch = drawn.choice(batches)
        others = torch.full((_OTHERS_BYTES,), _FILLING, dtype=torch.uint8, device="cuda")
        run(batch)
        kept = int((others == _FILLING).sum())
        seen.update(repr((batch, decoder.tokens[:batch].tolist(), kept)).encode())
        decoder.advance(batch)
    return seen.hexdigest()
