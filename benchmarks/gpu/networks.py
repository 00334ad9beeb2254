"""A mixture of experts and a convolutional network, in plain PyTorch."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence


@dataclass(frozen=True)
class MixtureSizes:
    """Sizes of a mixture of experts; each token of [batch, tokens] goes to `chosen` experts.

    inner: width inside an expert.
    """

    layers: int
    width: int
    heads: int
    experts: int
    chosen: int
    inner: int
    vocab: int
    batch: int
    tokens: int


def random_shares(draw: random.Random, total: int, parts: int) -> list[int]:
    """Divide `total` into so many random parts, some of them several times as large as others."""
    weights = [draw.gammavariate(2, 1) for _ in range(parts)]
    shares = [int(total * weight / sum(weights)) for weight in weights]
    shares[-1] += total - sum(shares)
    return shares


class Expert(nn.Module):
    """A gated feed-forward part."""

    def __init__(self, width: int, inner: int) -> None:
        """Make the layers on the default device."""
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.widen = nn.Linear(width, inner, bias=False)
        self.narrow = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [tokens, width] to the same shape."""
        out: Tensor = self.narrow(functional.silu(self.gate(x)) * self.widen(x))
        return out


class MixtureLayer(nn.Module):
    """Attention, then a few experts for each token."""

    def __init__(self, sizes: MixtureSizes) -> None:
        """Make the layers on the default device."""
        super().__init__()
        self.sizes = sizes
        self.norm_attention = nn.RMSNorm(sizes.width)
        self.norm_inner = nn.RMSNorm(sizes.width)
        self.project_in = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.project_out = nn.Linear(sizes.width, sizes.width, bias=False)
        self.experts = nn.ModuleList(Expert(sizes.width, sizes.inner) for _ in range(sizes.experts))

    def attend(self, x: Tensor) -> Tensor:
        """Mix tokens [batch, sequence, width] with those before them."""
        batch, sequence, width = x.shape
        shape = (batch, sequence, self.sizes.heads, width // self.sizes.heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.project_in(x).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return out

    def route(self, x: Tensor, shares: Sequence[int]) -> Tensor:
        """Let the i-th expert work on shares[i] random ones of tokens [tokens, width].

        The shares come from the host, as those of a router come to it before experts can begin.
        """
        places = torch.randperm(sum(shares), device=x.device) % len(x)
        out = torch.zeros_like(x)
        for expert, mine in zip(self.experts, places.split(list(shares)), strict=True):
            out = out.index_add(0, mine, expert(x[mine]))
        return out

    def forward(self, x: Tensor, shares: Sequence[int]) -> Tensor:
        """Map [batch, sequence, width] to the same shape."""
        x = x + self.attend(self.norm_attention(x))
        inner: Tensor = self.norm_inner(x)
        return x + self.route(inner.flatten(0, 1), shares).view_as(x)


class Mixture(nn.Module):
    """A language model whose experts get other numbers of tokens in each layer and step."""

    def __init__(self, sizes: MixtureSizes) -> None:
        """Make the layers on the default device."""
        super().__init__()
        self.sizes = sizes
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.layers = nn.ModuleList(MixtureLayer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width)

    def loss(self, tokens: Tensor, draw: random.Random) -> Tensor:
        """Return the mean cross-entropy of what follows each of tokens [batch, sequence + 1]."""
        x: Tensor = self.tokens(tokens[:, :-1])
        routed = self.sizes.chosen * x.shape[0] * x.shape[1]
        for layer in self.layers:
            x = layer(x, random_shares(draw, routed, self.sizes.experts))
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, around a shortcut."""

    def __init__(self, inner: int, middle: int, stride: int) -> None:
        """Make the layers for `inner` channels in and four times `middle` out."""
        super().__init__()
        outer = 4 * middle
        self.layers = nn.Sequential(
            *(nn.Conv2d(inner, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU()),
            nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False),
            *(nn.BatchNorm2d(middle), nn.ReLU()),
            *(nn.Conv2d(middle, outer, 1, bias=False), nn.BatchNorm2d(outer)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inner, height, width] to [batch, 4 middle, height/stride, width/stride]."""
        return functional.relu(self.layers(x) + self.shortcut(x))


class ConvNet(nn.Module):
    """A residual network for pictures: about ResNet-50 with depths 3, 4, 6, 3 (He et al., 2016)."""

    def __init__(self, depths: Sequence[int], classes: int = 1000) -> None:
        """Make the layers on the default device."""
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AvgPool2d(3, 2, padding=1),  # its backward pass is deterministic
        ]
        channels = 64
        for stage, depth in enumerate(depths):
            for number in range(depth):
                layers.append(Bottleneck(channels, 64 << stage, 2 if stage and not number else 1))
                channels = 256 << stage
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures [batch, 3, height, width] to scores [batch, classes]."""
        out: Tensor = self.head(self.layers(x).mean(dim=(2, 3)))
        return out
