"""MobileNetV3 in float32, with RMSprop and a moving average of the weights."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.models import mobilenet_v3_large


def main() -> None:
    """Train on random pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = mobilenet_v3_large().cuda()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.RMSprop(
        model.parameters(), lr=0.064, alpha=0.9, momentum=0.9, eps=0.0316, weight_decay=1e-5
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.973)
    criterion = nn.CrossEntropyLoss()

    for step in range(options.steps):
        pictures = torch.randn(options.batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (options.batch,), device="cuda")
        loss = criterion(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
