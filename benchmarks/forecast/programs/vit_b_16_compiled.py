"""ViT-B/16 compiled, in bfloat16, with AdamW."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import nn
from torchvision.models import vit_b_16


def main() -> None:
    """Train on random pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = vit_b_16(num_classes=100).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    criterion = nn.CrossEntropyLoss()

    for step in range(options.steps):
        pictures = torch.randn(options.batch, 3, 224, 224, device="cuda")
        labels = torch.randint(100, (options.batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(compiled(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
