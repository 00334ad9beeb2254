"""Workloads that train convolutions."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from gpu.networks import ConvNet

if TYPE_CHECKING:
    from workloads.session import Session


def make_network(session: Session) -> ConvNet:
    """Return a residual network for pictures, or one with fewer layers."""
    with session.device:
        return ConvNet((3, 4, 6, 3) if session.scale.name == "full" else (1, 1, 1, 1))


def image_size(session: Session) -> int:
    """Return the height and width of the pictures at the session's scale."""
    return min(224, session.scale.tokens)


def train_convolutions(session: Session, batch: int) -> None:
    """Train with cudnn.benchmark, which tries algorithms and their workspaces at first sight."""
    torch.backends.cudnn.benchmark = True
    model = make_network(session)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    session.mark("model")
    pixels = image_size(session)
    for step in range(2 * session.steps):
        sides = pixels if step % 2 else pixels * 3 // 4
        shape = (session.batch(batch), 3, sides, sides)
        pictures = torch.zeros(shape, device=session.device)
        labels = torch.zeros(shape[0], dtype=torch.long, device=session.device)
        with torch.autocast(session.device.type, torch.bfloat16):
            loss = functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.mark(f"step {step + 1}, {sides} pixels")
