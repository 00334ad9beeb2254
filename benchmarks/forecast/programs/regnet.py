"""RegNetY of 8 GFLOP, in bfloat16, with SGD and a warm-up."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch.nn import functional
from torch.optim.lr_scheduler import LinearLR
from torchvision.models import regnet_y_8gf


def main() -> None:
    """Train on random pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = regnet_y_8gf().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8, momentum=0.9, weight_decay=5e-5)
    scheduler = LinearLR(optimizer, start_factor=0.1, total_iters=options.steps)

    for step in range(options.steps):
        pictures = torch.rand(options.batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (options.batch,), device="cuda")
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            scores = model(pictures)
            loss = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
