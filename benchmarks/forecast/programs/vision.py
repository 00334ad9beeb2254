"""Trainings of networks for pictures, each as somebody might write it: python vision.py NAME."""

# torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional
from torch.optim.lr_scheduler import LinearLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset
from torchvision import models

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


def batch_of(count: int) -> tuple[Tensor, Tensor]:
    """Return random pictures and labels."""
    pictures = torch.randn(count, 3, 224, 224, device="cuda")
    return pictures, torch.randint(1000, (count,), device="cuda")


def convnext(batch: int = 128, steps: int = 6) -> None:
    """ConvNeXt-Small in bfloat16, with AdamW and mixed pictures."""
    torch.manual_seed(0)
    model = models.convnext_small().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)

    for step in range(steps):
        pictures = torch.rand(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (batch,), device="cuda")
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


def mnasnet(batch: int = 48, steps: int = 4, accumulate: int = 4) -> None:
    """MnasNet in float32, with Adam; gradients of four batches are added up before each update."""
    torch.manual_seed(0)
    model = models.mnasnet1_0().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    for step in range(steps):
        total = torch.zeros((), device="cuda")
        for _ in range(accumulate):
            pictures = torch.randn(batch, 3, 224, 224, device="cuda")
            labels = torch.randint(1000, (batch,), device="cuda")
            loss = criterion(model(pictures), labels) / accumulate
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {total.item():.4f}")


def mobilenet_v3(batch: int = 256, steps: int = 6) -> None:
    """MobileNetV3 in float32, with RMSprop and a moving average of the weights."""
    torch.manual_seed(0)
    model = models.mobilenet_v3_large().cuda()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.RMSprop(
        model.parameters(), lr=0.064, alpha=0.9, momentum=0.9, eps=0.0316, weight_decay=1e-5
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.973)
    criterion = nn.CrossEntropyLoss()

    for step in range(steps):
        pictures = torch.randn(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (batch,), device="cuda")
        loss = criterion(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)
        print(f"step {step}: loss {loss.item():.4f}")


def regnet(batch: int = 128, steps: int = 6) -> None:
    """RegNetY of 8 GFLOP, in bfloat16, with SGD and a warm-up."""
    torch.manual_seed(0)
    model = models.regnet_y_8gf().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8, momentum=0.9, weight_decay=5e-5)
    scheduler = LinearLR(optimizer, start_factor=0.1, total_iters=steps)

    for step in range(steps):
        pictures = torch.rand(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(1000, (batch,), device="cuda")
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            scores = model(pictures)
            loss = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        print(f"step {step}: loss {loss.item():.4f}")


def resnet50(batch: int = 256, steps: int = 6) -> None:
    """ResNet-50 in bfloat16 and channels-last, pictures from a DataLoader, and a validation."""
    torch.manual_seed(0)
    count = batch * steps
    training = DataLoader(Pictures(count), batch, shuffle=True, num_workers=2, pin_memory=True)
    validation = DataLoader(Pictures(batch * 2), batch, pin_memory=True)
    model = models.resnet50().cuda().to(memory_format=torch.channels_last)
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
    print(f"accuracy {right / (batch * 2):.3f}")


def resnet50_fp16(batch: int = 192, steps: int = 6) -> None:
    """ResNet-50 in float16 with a GradScaler, with Adam and cuDNN's search for algorithms."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = models.resnet50(num_classes=200).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = GradScaler("cuda")

    for step in range(steps):
        pictures = torch.randn(batch, 3, 224, 224).cuda()
        labels = torch.randint(200, (batch,)).cuda()
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step}: loss {loss.item():.4f}")


def vgg16(batch: int = 128, steps: int = 5) -> None:
    """VGG-16 in float32, with SGD."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    model = models.vgg16(num_classes=1000).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()

    model.train()
    for step in range(steps):
        pictures = torch.randn(batch, 3, 224, 224, device=device)
        labels = torch.randint(1000, (batch,), device=device)
        optimizer.zero_grad()
        loss = criterion(model(pictures), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


def vit_b_16(batch: int = 256, steps: int = 6) -> None:
    """ViT-B/16 in bfloat16, with a fused AdamW and a validation pass after the training steps."""
    torch.manual_seed(0)
    model = models.vit_b_16(dropout=0.1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.3, fused=True)
    criterion = nn.CrossEntropyLoss()

    model.train()
    for step in range(steps):
        pictures, labels = batch_of(batch)
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")

    model.eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        pictures, labels = batch_of(2 * batch)
        print(f"validation loss {criterion(model(pictures), labels).item():.4f}")


def vit_b_16_compiled(batch: int = 128, steps: int = 5) -> None:
    """ViT-B/16 compiled, in bfloat16, with AdamW."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = models.vit_b_16(num_classes=100).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    criterion = nn.CrossEntropyLoss()

    for step in range(steps):
        pictures = torch.randn(batch, 3, 224, 224, device="cuda")
        labels = torch.randint(100, (batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(compiled(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


PROGRAMS = (
    convnext,
    mnasnet,
    mobilenet_v3,
    regnet,
    resnet50,
    resnet50_fp16,
    vgg16,
    vit_b_16,
    vit_b_16_compiled,
)


def main() -> None:
    """Run one of them."""
    named = {program.__name__: program for program in PROGRAMS}
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=named)
    parser.add_argument("--batch", type=int, default=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=argparse.SUPPRESS)
    options = vars(parser.parse_args())
    named[options.pop("program")](**options)


if __name__ == "__main__":
    main()
