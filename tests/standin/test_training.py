"""Steps of training a GPT: what they allocate, keep, and ask of the driver."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.standin.accounting import rounded, tensor_bytes
from tests.standin.training import CONFIG, Trainer, memory_calls, peak_of
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from gmlake.standin import control


def test_parameters_gradients_and_states_are_what_is_allocated() -> None:
    trainer = Trainer(foreach=True)
    weights = tensor_bytes(trainer.parameters)
    assert torch.cuda.memory_allocated() == weights

    trainer.backward()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 (its only name)
    assert torch.cuda.memory_allocated() == 2 * weights
    trainer.optimizer.step()
    assert torch.cuda.memory_allocated() == 4 * weights
    trainer.optimizer.zero_grad()
    assert torch.cuda.memory_allocated() == 3 * weights


@pytest.mark.parametrize("has_checkpoints", [False, True])
@pytest.mark.parametrize("implementation", ["foreach", "fused", "for-loop"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_a_steady_step_keeps_nothing_and_asks_the_driver_for_nothing(
    dtype: torch.dtype | None, implementation: str, *, has_checkpoints: bool
) -> None:
    options = {"foreach": implementation == "foreach", "fused": implementation == "fused"}
    trainer = Trainer(dtype, has_checkpoints=has_checkpoints, **options)
    trainer.step()
    trainer.step()
    after_two = torch.cuda.memory_allocated()
    peak_two = torch.cuda.max_memory_allocated()
    control.reset_calls()
    trainer.step()

    assert torch.cuda.memory_allocated() == after_two
    assert torch.cuda.max_memory_allocated() == peak_two
    called = control.calls()
    assert memory_calls(called) == {}
    assert called["cudaLaunchKernel"] > 100


def test_checkpoints_lower_the_peak() -> None:
    def peak(*, has_checkpoints: bool) -> int:
        trainer = Trainer(has_checkpoints=has_checkpoints)
        trainer.step()
        return peak_of(trainer.step)

    whole, checkpointed = peak(has_checkpoints=False), peak(has_checkpoints=True)
    # Each layer keeps at least its widened activations [4, context, 4 width], in and out of gelu.
    widened = rounded(4 * CONFIG.context * 4 * CONFIG.width * 4)
    assert whole - checkpointed > (CONFIG.layers - 1) * 2 * widened


def test_autocast_lowers_the_peak_of_activations() -> None:
    whole, half = (peak_of(Trainer(dtype).backward) for dtype in (None, torch.bfloat16))
    assert half < whole


@pytest.mark.parametrize(
    "backend",
    [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.MATH,
    ],
    ids=lambda backend: str(backend).rsplit(".", maxsplit=1)[-1].lower(),
)
def test_attention_runs_forward_and_backward(backend: SDPBackend) -> None:
    shape = (2, 4, 128, 64)
    inputs: list[Any] = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    query, key, value = inputs
    with sdpa_kernel(backend):
        out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out.backward(torch.ones_like(out))
    assert out.shape == shape
    assert [tensor.grad.shape for tensor in inputs] == [shape] * 3
    torch.cuda.synchronize()


def test_attention_by_parts_needs_less_than_all_scores() -> None:
    def peak(backend: SDPBackend) -> int:
        query = torch.empty(1, 1, 2048, 64, device="cuda", dtype=torch.bfloat16)

        def attend() -> None:
            with sdpa_kernel(backend):
                nn.functional.scaled_dot_product_attention(query, query, query)

        return peak_of(attend)

    scores = 2048 * 2048 * 2
    assert peak(SDPBackend.MATH) >= scores
    assert peak(SDPBackend.FLASH_ATTENTION) < scores


def test_batches_come_through_pinned_memory() -> None:
    rows = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4))
    loader = torch.utils.data.DataLoader(rows, batch_size=4, pin_memory=True)
    layer: Any = nn.Linear(4, 1, device="cuda")
    for (row,) in loader:
        layer(row.to("cuda", non_blocking=True)).sum().backward()
    assert layer.weight.grad.shape == (1, 4)
