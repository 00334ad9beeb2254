"""Convolution networks, with cuDNN choosing among its algorithms and without."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator


def network() -> Any:
    """Return a classifier of pictures [batch, 3, 64, 64]."""
    with torch.device("cuda"):
        return nn.Sequential(
            nn.Conv2d(3, 32, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.Conv2d(32, 64, 3, padding=1, groups=4),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
            nn.GroupNorm(4, 32),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )


@pytest.fixture(params=[True, False], ids=["benchmark", "heuristic"])
def _benchmark(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, benchmark=request.param, allow_tf32=True):
        yield


def train(model: Any, layout: torch.memory_format, *, is_mixed: bool) -> None:
    """Train for one step on one batch of pictures."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pictures = torch.randn(8, 3, 64, 64, device="cuda").to(memory_format=layout)
    labels = torch.zeros(8, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=is_mixed):
        loss = nn.functional.cross_entropy(model(pictures), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.usefixtures("_benchmark")
@pytest.mark.parametrize("is_mixed", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_steady_step_keeps_nothing(layout: torch.memory_format, *, is_mixed: bool) -> None:
    model = network().to(memory_format=layout)
    train(model, layout, is_mixed=is_mixed)
    train(model, layout, is_mixed=is_mixed)
    after_two = torch.cuda.memory_allocated()
    reserved = torch.cuda.memory_reserved()
    control.reset_calls()
    train(model, layout, is_mixed=is_mixed)
    assert torch.cuda.memory_allocated() == after_two
    assert torch.cuda.memory_reserved() == reserved
    called = control.calls()
    assert called["cudnnBackendExecute"] > 0
    assert not {"cudaMalloc", "cudaFree"} & set(called)


def test_evaluation_frees_what_training_would_keep() -> None:
    model = network().eval()
    pictures = torch.randn(8, 3, 64, 64, device="cuda")

    def kept(*, has_gradients: bool) -> int:
        before = torch.cuda.memory_allocated()
        with torch.set_grad_enabled(has_gradients):
            out = model(pictures)
        assert out.shape == (8, 10)
        grown: int = torch.cuda.memory_allocated() - before
        return grown

    kept(has_gradients=False)
    assert kept(has_gradients=False) == 512
    assert kept(has_gradients=True) > 8 * 32 * 32 * 32 * 4


@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions(dimensions: int) -> None:
    kind = {1: nn.Conv1d, 3: nn.Conv3d}[dimensions]
    layer: Any = kind(4, 8, 3, device="cuda")
    out = layer(torch.randn(2, 4, *[9] * dimensions, device="cuda"))
    out.sum().backward()
    assert out.shape == (2, 8, *[7] * dimensions)
    assert layer.weight.grad.shape == layer.weight.shape
