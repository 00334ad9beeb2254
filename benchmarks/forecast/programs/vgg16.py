"""VGG-16 in float32, with SGD."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import nn
from torchvision.models import vgg16


def main() -> None:
    """Train on random pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda")
    model = vgg16(num_classes=1000).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()

    model.train()
    for step in range(options.steps):
        pictures = torch.randn(options.batch, 3, 224, 224, device=device)
        labels = torch.randint(1000, (options.batch,), device=device)
        optimizer.zero_grad()
        loss = criterion(model(pictures), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
