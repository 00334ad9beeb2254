"""ResNet-50 in float16 with a GradScaler, with Adam and cuDNN's search for the best algorithm."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional
from torchvision.models import resnet50


def main() -> None:
    """Train on random pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = resnet50(num_classes=200).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = GradScaler("cuda")

    for step in range(options.steps):
        pictures = torch.randn(options.batch, 3, 224, 224).cuda()
        labels = torch.randint(200, (options.batch,)).cuda()
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
