"""Workloads that train convolutions."""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from workloads.session import Session


class Residual(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        """Make the layers for `inner` channels in and `outer` out."""
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outer)
        self.second = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inner != outer:
            self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, inner, height, width] to [batch, outer, height/stride, width/stride]."""
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.shortcut(x))


class ConvNet(nn.Module):
    """A residual network for pictures, of 34 layers (He et al., 2016, table 1) or of 10."""

    def __init__(self, is_deep: bool, classes: int = 1000) -> None:  # noqa: FBT001
        """Make the layers, on the default device."""
        super().__init__()
        depths = (3, 4, 6, 3) if is_deep else (1, 1, 1, 1)
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        ]
        channels = 64
        for stage, depth in enumerate(depths):
            for number in range(depth):
                stride = 2 if stage and not number else 1
                layers.append(Residual(channels, 64 << stage, stride))
                channels = 64 << stage
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures [batch, 3, height, width] to scores [batch, classes]."""
        out: Tensor = self.head(self.layers(x).mean(dim=(2, 3)))
        return out


def image_size(session: Session) -> int:
    """Return the height and width of the pictures at the session's scale."""
    return min(224, session.scale.tokens)


def train_convolutions(session: Session, batch: int) -> None:
    """Train with cudnn.benchmark, which tries algorithms and their workspaces at first sight."""
    torch.backends.cudnn.benchmark = True
    with session.device:
        model = ConvNet(session.scale.name == "full")
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
