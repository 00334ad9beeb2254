"""A language model with LoRA adapters and activation checkpoints, in plain PyTorch."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Llama; `width` is a multiple of `heads`, `heads` one of `pairs`.

    pairs: heads of keys and values. inner: width of the feed-forward part. longest: tokens of a
    sequence at most. rank: of the adapters.
    """

    layers: int
    width: int
    heads: int
    pairs: int
    inner: int
    vocab: int
    longest: int
    rank: int = 16

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads


# 1b: TinyLlama 1.1B (Zhang et al., "TinyLlama: An Open-Source Small Language Model", 2024).
SIZES = {
    "1b": Sizes(layers=22, width=2048, heads=32, pairs=4, inner=5632, vocab=32_000, longest=2048),
    "tiny": Sizes(layers=2, width=256, heads=4, pairs=2, inner=512, vocab=4000, longest=256),
}


class Adapted(nn.Module):
    """A frozen linear layer in bfloat16, and a trained low-rank addition to it in float32."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        """Make the weights on the default device."""
        super().__init__()
        frozen = torch.randn(outputs, inputs, dtype=torch.bfloat16).mul_(inputs**-0.5)
        self.weight = nn.Parameter(frozen, requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        low = functional.linear(x, self.down.to(x.dtype))
        return functional.linear(x, self.weight) + functional.linear(low, self.up.to(x.dtype)) * 2


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Give the heads [batch, heads, sequence, head] their positions: turns [2, sequence, head]."""
    left, right = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat((-right, left), dim=-1) * turns[1]


def turns_of(sizes: Sizes, sequence: int, device: torch.device) -> Tensor:
    """Return cosines and sines [2, sequence, head] of every position, for rotate()."""
    places = torch.arange(sequence, device=device, dtype=torch.float32)
    pairs = torch.arange(0, sizes.head, 2, device=device, dtype=torch.float32)
    angles = torch.outer(places, 10_000.0 ** (-pairs / sizes.head))
    angles = torch.cat((angles, angles), dim=-1)
    return torch.stack((angles.cos(), angles.sin())).to(torch.bfloat16)


class Layer(nn.Module):
    """One block: attention, then a gated feed-forward part."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the layers on the default device."""
        super().__init__()
        self.sizes = sizes
        keys = sizes.pairs * sizes.head
        self.norm_attention = nn.RMSNorm(sizes.width, dtype=torch.bfloat16).requires_grad_(False)  # noqa: FBT003
        self.norm_inner = nn.RMSNorm(sizes.width, dtype=torch.bfloat16).requires_grad_(False)  # noqa: FBT003
        self.query = Adapted(sizes.width, sizes.width, sizes.rank)
        self.key = Adapted(sizes.width, keys, sizes.rank)
        self.value = Adapted(sizes.width, keys, sizes.rank)
        self.mix = Adapted(sizes.width, sizes.width, sizes.rank)
        self.gate = Adapted(sizes.width, sizes.inner, sizes.rank)
        self.widen = Adapted(sizes.width, sizes.inner, sizes.rank)
        self.narrow = Adapted(sizes.inner, sizes.width, sizes.rank)

    def _heads(self, x: Tensor, count: int) -> Tensor:
        batch, sequence, _ = x.shape
        return x.view(batch, sequence, count, self.sizes.head).transpose(1, 2)

    def _for_every_head(self, x: Tensor) -> Tensor:
        batch, pairs, sequence, head = x.shape
        copies = self.sizes.heads // pairs
        wide = x[:, :, None].expand(batch, pairs, copies, sequence, head)
        return wide.reshape(batch, pairs * copies, sequence, head)

    def attend(self, x: Tensor, turns: Tensor) -> Tensor:
        """Mix tokens [batch, sequence, width] with those before them."""
        query = rotate(self._heads(self.query(x), self.sizes.heads), turns)
        key = rotate(self._heads(self.key(x), self.sizes.pairs), turns)
        value = self._heads(self.value(x), self.sizes.pairs)
        key, value = self._for_every_head(key), self._for_every_head(value)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # its backward pass can be deterministic
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.mix(mixed.transpose(1, 2).flatten(2))
        return out

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        x = x + self.attend(self.norm_attention(x), turns)
        inner = self.norm_inner(x)
        gated = functional.silu(self.gate(inner)) * self.widen(inner)
        out: Tensor = x + self.narrow(gated)
        return out


class Tuned(nn.Module):
    """The model. Only its adapters are trained; each layer is computed twice."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the layers on the default device."""
        super().__init__()
        self.sizes = sizes
        table = torch.randn(sizes.vocab, sizes.width, dtype=torch.bfloat16).mul_(0.02)
        self.tokens = nn.Parameter(table, requires_grad=False)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))

    def turns(self, sequence: int) -> Tensor:
        """Return cosines and sines [2, sequence, head] of every position."""
        return turns_of(self.sizes, sequence, self.tokens.device)

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy of what follows each of tokens [batch, sequence + 1]."""
        x = functional.embedding(tokens[:, :-1], self.tokens)
        turns = self.turns(x.shape[1])
        for layer in self.layers:
            x = checkpoint(layer, x, turns, use_reentrant=False)
        logits = functional.linear(functional.rms_norm(x, (self.sizes.width,)), self.tokens)
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
