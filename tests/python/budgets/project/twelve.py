"""Twelve tests, each with a budget of GPU memory."""

# mypy: disable-error-code="no-any-return, no-untyped-call"

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from . import training
from .model import Model, images

memory = pytest.mark.limit_gpu_memory


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return Model().cuda()


@pytest.fixture
def tokens() -> Tensor:
    return torch.ones(8, 256, dtype=torch.long, device="cuda")


@memory("1 GiB")
def test_training(model: nn.Module, tokens: Tensor) -> None:
    assert len(training.train(model, tokens)) == 2


@memory("1 GiB")
def test_many_steps(model: nn.Module, tokens: Tensor) -> None:
    assert len(training.train(model, tokens, 6)) == 6


@memory("1 GiB")
def test_checkpointed(tokens: Tensor) -> None:
    training.train(Model(checkpointed=True).cuda(), tokens)


@memory("1 GiB")
def test_half_precision(model: nn.Module, tokens: Tensor) -> None:
    training.train_in_halves(model, tokens)


@memory("1 GiB")
def test_evaluation(model: nn.Module, tokens: Tensor) -> None:
    assert training.evaluate(model, tokens).shape == tokens.shape


@memory("1 GiB", allocator="expandable")
def test_generation(model: nn.Module, tokens: Tensor) -> None:
    training.generate(model, tokens)


@memory("1 GiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
def test_features(model: nn.Module, tokens: Tensor) -> None:
    assert len(training.features(model, tokens)) > 20


@memory("1 GiB")
def test_padding(model: nn.Module) -> None:
    training.loss_of(model, training.batch_of([30, 100, 60, 90])).backward()


@memory("1 GiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
def test_two_losses(model: nn.Module, tokens: Tensor) -> None:
    assert training.two_losses(model, tokens) >= 0


@memory("1 GiB")
def test_last_words(model: nn.Module, tokens: Tensor) -> None:
    assert len(training.last_words(model, tokens)) == 4


@memory("4 GiB", device="h200")
def test_images() -> None:
    pictures = torch.zeros(16, 3, 128, 128, device="cuda")
    images().cuda()(pictures).sum().backward()


@memory("1 GiB", ranks=4)
def test_ranks() -> None:
    torch.distributed.init_process_group("nccl")
    rank = torch.distributed.get_rank()
    torch.cuda.set_device(rank)
    shard = torch.zeros(rank + 1, 1 << 20, device="cuda")
    torch.distributed.all_reduce(shard)
