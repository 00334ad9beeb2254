"""ResNet-50 in bfloat16 and channels-last, pictures from a DataLoader, and a validation pass."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


class Pictures(Dataset[tuple[Tensor, int]]):
    """Stands for a folder of pictures, which come as bytes."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= self.count:
            raise IndexError(index)
        return torch.full((3, 224, 224), index % 256, dtype=torch.uint8), index % 1000


def prepared(pictures: Tensor) -> Tensor:
    """Return pictures as the model wants them, on the GPU."""
    mean = torch.tensor(MEAN, device="cuda").view(1, 3, 1, 1)
    deviation = torch.tensor(DEVIATION, device="cuda").view(1, 3, 1, 1)
    pictures = pictures.cuda(non_blocking=True).float().div_(255).sub_(mean).div_(deviation)
    return pictures.contiguous(memory_format=torch.channels_last)


def main() -> None:
    """Train for one short epoch, then validate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(0)
    count = options.batch * options.steps
    training = DataLoader(
        Pictures(count), options.batch, shuffle=True, num_workers=2, pin_memory=True
    )
    validation = DataLoader(Pictures(options.batch * 2), options.batch, pin_memory=True)
    model = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    model.train()
    for step, (pictures, labels) in enumerate(training):
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(model(prepared(pictures)), labels.cuda(non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")

    model.eval()
    right = 0
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for pictures, labels in validation:
            guesses = model(prepared(pictures)).argmax(dim=1)
            right += int((guesses == labels.cuda(non_blocking=True)).sum())
    print(f"accuracy {right / (options.batch * 2):.3f}")


if __name__ == "__main__":
    main()
