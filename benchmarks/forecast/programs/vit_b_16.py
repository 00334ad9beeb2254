"""ViT-B/16 in bfloat16, with a fused AdamW and a validation pass after the training steps."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torchvision.models import vit_b_16


def batch_of(count: int) -> tuple[Tensor, Tensor]:
    """Return random pictures and labels."""
    pictures = torch.randn(count, 3, 224, 224, device="cuda")
    return pictures, torch.randint(1000, (count,), device="cuda")


def main() -> None:
    """Train, then validate with batches twice as large."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = vit_b_16(dropout=0.1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.3, fused=True)
    criterion = nn.CrossEntropyLoss()

    model.train()
    for step in range(options.steps):
        pictures, labels = batch_of(options.batch)
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")

    model.eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        pictures, labels = batch_of(2 * options.batch)
        print(f"validation loss {criterion(model(pictures), labels).item():.4f}")


if __name__ == "__main__":
    main()
