"""Optimizer states in float32 of parameters in bfloat16, on the device or on the host."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_PIECE = 1 << 24
"""Elements that are copied to the host at a time."""


class Masters:
    """Masters in float32 and two moments, on the device, of a share of each parameter.

    shares: into how many equal parts a parameter is divided; this one has the first.
    """

    def __init__(self, parameters: Sequence[Tensor], shares: int = 1) -> None:
        """Copy the parameters; the moments come with the first step."""
        self.parts = [part(parameter, shares) for parameter in parameters]
        self.masters = [one.float().requires_grad_() for one in self.parts]
        self.shares = shares
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, fused=True)

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Train on gradients of the parameters, in any type."""
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = part(gradient, self.shares).to(torch.float32)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for one, master in zip(self.parts, self.masters, strict=True):
            one.copy_(master.detach())


def part(tensor: Tensor, shares: int) -> Tensor:
    """Return the first of so many shares of a tensor's elements, as a view."""
    flat = tensor.detach().view(-1)
    return flat[: -(-len(flat) // shares)]


class Host:
    """An optimizer on the host: gradients are copied there, parameters back. It keeps no values."""

    def __init__(self) -> None:
        """Make the buffers through which all goes."""
        self.gradients = torch.empty(_PIECE)
        self.parameters = torch.zeros(_PIECE, dtype=torch.bfloat16)

    def take(self, gradient: Tensor) -> None:
        """Copy a gradient to the host, which allocates nothing on the device."""
        held = self.gradients.view(gradient.dtype)
        for piece in gradient.detach().view(-1).split(_PIECE):
            held[: len(piece)].copy_(piece)

    def give(self, parameters: Sequence[Tensor]) -> None:
        """Copy parameters in bfloat16 back."""
        for parameter in parameters:
            for piece in parameter.detach().view(-1).split(_PIECE):
                piece.copy_(self.parameters[: len(piece)])
