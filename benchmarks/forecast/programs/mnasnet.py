"""MnasNet in float32, with Adam; gradients of four batches are added up before each update."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import nn
from torchvision.models import mnasnet1_0


def main() -> None:
    """Train on random pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = mnasnet1_0().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    for step in range(options.steps):
        total = torch.zeros((), device="cuda")
        for _ in range(options.accumulate):
            pictures = torch.randn(options.batch, 3, 224, 224, device="cuda")
            labels = torch.randint(1000, (options.batch,), device="cuda")
            loss = criterion(model(pictures), labels) / options.accumulate
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {total.item():.4f}")


if __name__ == "__main__":
    main()
