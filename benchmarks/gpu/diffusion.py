"""One step of a diffusion model as image generators take it: a transformer, then a decoder.

The transformer computes over patches of a latent image, every block as large as the last; the
decoder turns the latent image into pixels, by convolutions at growing resolution. Weights and
inputs are random, nothing is trained, and each step computes the same.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, no-any-return, unused-ignore"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

LATENT_CHANNELS = 16
_PATCH = 2


@dataclass(frozen=True)
class Size:
    """side: patches in a row of the image, of which it has as many. channels: of each stage."""

    blocks: int
    width: int
    heads: int
    side: int
    channels: tuple[int, ...]
    groups: int


SIZES = {
    "full": Size(24, width=3072, heads=24, side=64, channels=(512, 512, 256, 128), groups=32),
    "tiny": Size(3, width=768, heads=6, side=32, channels=(64, 64, 32, 16), groups=4),
}


class Block(nn.Module):
    """Attention and a wide layer, scaled and shifted by what the time of the step says."""

    def __init__(self, size: Size) -> None:
        """Make the weights."""
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.table = nn.Parameter(torch.randn(6, width) / width**0.5)
        self.projected = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.widened = nn.Linear(width, 4 * width)
        self.narrowed = nn.Linear(4 * width, width)

    def forward(self, patches: torch.Tensor, time: torch.Tensor) -> None:
        """Change the patches to those that the next block takes, in place, as ComfyUI's blocks do.

        So nothing that a block allocates lives longer than the block.
        """
        shift, scale, gate, shift_wide, scale_wide, gate_wide = (self.table + time).unbind(-2)
        normal = functional.layer_norm(patches, patches.shape[-1:]) * (1 + scale) + shift
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.projected(normal).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value)
        patches += gate * self.joined(seen.transpose(1, 2).flatten(2))
        normal = functional.layer_norm(patches, patches.shape[-1:]) * (1 + scale_wide) + shift_wide
        wide = functional.gelu(self.widened(normal), approximate="tanh")
        patches += gate_wide * self.narrowed(wide)


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, taken: int, given: int, groups: int) -> None:
        """Make the weights. taken, given: channels."""
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(groups, taken), nn.SiLU(), nn.Conv2d(taken, given, 3, padding=1)
        )
        self.second = nn.Sequential(
            nn.GroupNorm(groups, given), nn.SiLU(), nn.Conv2d(given, given, 3, padding=1)
        )
        self.shortcut = nn.Identity() if taken == given else nn.Conv2d(taken, given, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return an image as large."""
        return self.shortcut(image) + self.second(self.first(image))


class Larger(nn.Module):
    """Twice the height and width."""

    def __init__(self, channels: int) -> None:
        """Make the weights."""
        super().__init__()
        self.smooth = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the larger image."""
        return self.smooth(functional.interpolate(image, scale_factor=2.0, mode="nearest"))


def _decoder(size: Size) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(LATENT_CHANNELS, size.channels[0], 3, padding=1)]
    before = size.channels[0]
    for number, channels in enumerate(size.channels):
        if number:
            layers.append(Larger(before))
        layers += [
            Residual(before, channels, size.groups),
            Residual(channels, channels, size.groups),
        ]
        before = channels
    end = (nn.GroupNorm(size.groups, before), nn.SiLU(), nn.Conv2d(before, 3, 3, padding=1))
    return [*layers, nn.Sequential(*end)]


class Diffusion(nn.Module):
    """The model, its inputs, and the picture that a step writes."""

    def __init__(self, size: Size) -> None:
        """Make all of it, on the device and in the precision that are PyTorch's defaults."""
        super().__init__()
        patch = LATENT_CHANNELS * _PATCH**2
        self.size = size
        self.embedded = nn.Linear(patch, size.width)
        self.timed = nn.Linear(size.width, 6 * size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.blocks))
        self.ended = nn.Linear(size.width, patch)
        self.decoder = nn.ModuleList(_decoder(size))
        self.latent = torch.randn(1, size.side**2, patch)
        self.time = torch.randn(1, size.width)
        pixels = _PATCH * size.side * 2 ** (len(size.channels) - 1)
        self.picture = torch.zeros(1, 3, pixels, pixels)

    @torch.no_grad()
    def step(self, at: Callable[[str], None]) -> None:
        """Write the picture.

        at: called with "block" before each block, with "decoder" after the last, and with "layer"
        after each block and layer, while its results are alive.
        """
        time = functional.silu(self.timed(self.time)).unflatten(-1, (6, -1))
        patches = self.embedded(self.latent)
        for block in self.blocks:
            at("block")
            block(patches, time)
            at("layer")
        at("decoder")
        side = self.size.side
        image = self.ended(patches).unflatten(1, (side, side))
        image = image.unflatten(-1, (LATENT_CHANNELS, _PATCH, _PATCH)).permute(0, 3, 1, 4, 2, 5)
        image = image.reshape(1, LATENT_CHANNELS, _PATCH * side, _PATCH * side)
        del patches
        for layer in self.decoder:
            image = layer(image)
            at("layer")
        self.picture.copy_(image)
