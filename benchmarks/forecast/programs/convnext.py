"""ConvNeXt-Small in bfloat16, with AdamW and mixed pictures."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch.nn import functional
from torchvision.models import convnext_small


def main() -> None:
    """Train on random pictures, each of them mixed with another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = convnext_small().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)

    for step in range(options.steps):
        pictures = torch.rand(options.batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (options.batch,), device="cuda")
        share = 0.8
        targets = functional.one_hot(labels, 1000).float()
        targets = share * targets + (1 - share) * targets.roll(1, 0)
        pictures = share * pictures + (1 - share) * pictures.roll(1, 0)
        pictures = pictures.contiguous(memory_format=torch.channels_last)

        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(pictures), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
