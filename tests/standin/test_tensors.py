"""Tensors on two devices, copies between them, and operations whose results are read back."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import reserved_bytes

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def test_devices_are_what_the_settings_say() -> None:
    assert torch.cuda.device_count() == 2
    for device in range(2):
        properties = torch.cuda.get_device_properties(device)
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        assert properties.name == torch.cuda.get_device_name(device)
        assert total_bytes == properties.total_memory == 80 << 30
        assert 0 < free_bytes <= total_bytes
        assert torch.cuda.get_device_capability(device) == (9, 0)
    assert torch.cuda.can_device_access_peer(0, 1)


@pytest.mark.parametrize("device", [0, 1])
def test_a_tensor_is_counted_on_its_own_device(device: int) -> None:
    other = 1 - device
    before = [torch.cuda.memory_allocated(device), torch.cuda.memory_allocated(other)]
    free_before = torch.cuda.mem_get_info(device)[0]

    tensor = torch.empty(1000, device=f"cuda:{device}")
    large = torch.empty(30 * MIB, dtype=torch.uint8, device=f"cuda:{device}")

    assert tensor.device.index == large.device.index == device
    assert torch.cuda.memory_allocated(device) == before[0] + 4096 + 30 * MIB
    assert torch.cuda.memory_allocated(other) == before[1]
    assert torch.cuda.memory_reserved(device) == 2 * MIB + 30 * MIB
    assert torch.cuda.mem_get_info(device)[0] == free_before - 32 * MIB


def test_current_device_decides_where_tensors_go() -> None:
    with torch.cuda.device(1):
        assert torch.empty(3, device="cuda").device.index == 1
    assert torch.empty(3, device="cuda").device.index == 0


def test_copies_between_devices_and_the_host() -> None:
    here = torch.zeros(256, 1024, device="cuda:0")
    there = here.to("cuda:1")
    host = there.cpu()
    back = host.cuda(1)
    pinned = torch.ones(256, 1024).pin_memory()
    late = pinned.to("cuda:0", non_blocking=True)
    here.copy_(there)

    assert host.device.type == "cpu"
    assert host.shape == (256, 1024)
    assert pinned.is_pinned()
    assert late.device.index == 0
    assert torch.cuda.memory_allocated(0) == 2 * MIB
    assert torch.cuda.memory_allocated(1) == torch.cuda.memory_allocated(back.device) == 2 * MIB
    assert control.calls()["cudaMemcpyAsync"] > 0


def test_a_pinned_tensor_comes_from_the_host_allocator() -> None:
    stats = torch.cuda.host_memory_stats()
    pinned = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    grown = torch.cuda.host_memory_stats()
    assert pinned.is_pinned()
    assert grown["active_requests.allocated"] == stats["active_requests.allocated"] + 1


def test_peak_is_kept_and_reset() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    first = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    del first
    second = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.max_memory_allocated() == before + 8 * MIB
    assert torch.cuda.memory_allocated() == before + 4 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before + 4 * MIB
    del second


def test_everything_is_given_back() -> None:
    tensors = [
        torch.empty(size, device=f"cuda:{i % 2}") for i, size in enumerate([1, 10**3, 10**7])
    ]
    assert torch.cuda.memory_reserved(0) > 0
    assert torch.cuda.memory_reserved(1) > 0
    del tensors
    assert reserved_bytes() == [0, 0]
    assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) == 0


READ_BACK: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "condition": lambda x: bool((x > 0).all()),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x[x > 0],
    "where": lambda x: torch.where(x > 0),
    "index_put": lambda x: x.index_put_((torch.tensor([1, 2], device=x.device),), x[0] + 1),
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "sort": lambda x: x.sort(dim=1),
    "topk": lambda x: x.topk(4),
    "argmax": lambda x: int(x.argmax()),
    "multinomial": lambda x: torch.multinomial(x.softmax(1), 3),
    "bincount": lambda x: x.long().flatten().bincount(minlength=4),
    "histc": lambda x: x.histc(bins=5, min=-1, max=1),
    "repeat_interleave": lambda x: x.repeat_interleave(
        torch.ones(16, dtype=torch.long, device=x.device), dim=0, output_size=16
    ),
    "cumsum": lambda x: x.cumsum(1),
    "kthvalue": lambda x: x.kthvalue(3),
    "median": lambda x: x.median(),
    "any_is_nan": lambda x: x.isnan().any().item(),
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x, x + 1),
    "tolist": lambda x: x.tolist(),
    "repr": repr,
    "numpy": lambda x: x.cpu().numpy(),
    "randperm": lambda x: torch.randperm(x.numel(), device=x.device),
    "dropout": lambda x: torch.dropout(x, 0.5, train=True),
    "scatter": lambda x: x.scatter_add(1, torch.zeros_like(x, dtype=torch.long), x),
    "embedding": lambda x: torch.embedding(x, torch.zeros(7, dtype=torch.long, device=x.device)),
    "pad_sequence": lambda x: torch.nn.utils.rnn.pad_sequence([x, x[:3]]),
    "interpolate": lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2.0),
}


@pytest.mark.parametrize("name", READ_BACK)
def test_operations_that_depend_on_values_run(name: str) -> None:
    x = torch.randn(16, 32, device="cuda")
    READ_BACK[name](x)
    torch.cuda.synchronize()


def test_what_pytorch_computes_to_check_its_input_is_zero() -> None:
    """Each zero is false, so a check of values that a kernel would have passed fails."""
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        x.repeat_interleave(torch.ones(4, dtype=torch.long, device="cuda"))
    assert not bool((x > 0).all())


def test_memory_cannot_be_shared_with_another_process() -> None:
    storage = torch.ones(4, device="cuda").untyped_storage()
    with pytest.raises(RuntimeError, match="operation not supported"):
        storage._share_cuda_()


LIBRARIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "mm": lambda x: x @ x,
    "mm_half": lambda x: x.half() @ x.half(),
    "mm_double": lambda x: x.double() @ x.double(),
    "mm_complex": lambda x: x.to(torch.complex64) @ x.to(torch.complex64),
    "bmm": lambda x: torch.bmm(x[None].expand(3, -1, -1), x[None].expand(3, -1, -1)),
    "addmm_bias": lambda x: torch.nn.functional.linear(x, x, x[0]),
    "addmv": lambda x: x @ x[0],
    "dot": lambda x: x[0] @ x[1],
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "cholesky": torch.linalg.cholesky_ex,
    "lu": torch.linalg.lu_factor_ex,
    "solve": lambda x: torch.linalg.solve_ex(x, x),
    "triangular": lambda x: torch.linalg.solve_triangular(x, x, upper=True),
    "qr": torch.linalg.qr,
    "fft": torch.fft.rfft2,
    "sparse_mm": lambda x: torch.sparse.mm(x.to_sparse(), x),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_operations_of_the_libraries_run(name: str) -> None:
    x = torch.randn(32, 32, device="cuda")
    LIBRARIES[name](x)
    torch.cuda.synchronize()


def test_random_state_is_kept_and_restored() -> None:
    torch.manual_seed(3)
    state = torch.cuda.get_rng_state()
    torch.randn(100, device="cuda")
    assert not torch.equal(torch.cuda.get_rng_state(), state)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.cuda.get_rng_state(), state)
