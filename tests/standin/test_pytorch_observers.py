"""What PyTorch's own tests ask of the end of memory, and of who is told of it, in our words."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.asking import MIB, C, at_most, block, recorded, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOO_MUCH = 1 << 22  # MiB
_told: list[Callable[..., None]] = []  # an observer cannot be taken away


@pytest.fixture
def observe() -> Iterator[Callable[[Callable[..., None]], None]]:
    """Return what attaches an observer until the test ends."""
    if not _told:
        C._cuda_attach_out_of_memory_observer(lambda *figures: [each(*figures) for each in _told])
        _told.append(lambda *_: None)
    before = list(_told)
    yield _told.append
    _told[:] = before


def run_out(device: str = "cuda", mib: float = TOO_MUCH) -> str:
    """Ask for more than there is; return the text."""
    with pytest.raises(torch.OutOfMemoryError) as caught:
        block(mib, device)
    return str(caught.value)


def test_an_observer_is_told_within_a_pool_and_a_capture(observe: Any) -> None:
    sizes: list[int] = []
    observe(lambda *told: sizes.append(told[1]))
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        run_out(mib=TOO_MUCH)
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(8, device="cuda")
    with torch.cuda.graph(graph):
        x.add_(1)
        run_out(mib=2 * TOO_MUCH)
    graph.replay()
    torch.cuda.synchronize()
    assert sizes == [TOO_MUCH * MIB, 2 * TOO_MUCH * MIB]


def test_memory_of_a_failed_step_is_there_for_a_smaller_one() -> None:
    total_mib = torch.cuda.get_device_properties(0).total_memory // MIB

    def step(mib: float) -> int:
        return len([block(mib) for _ in range(4)])

    with pytest.raises(torch.OutOfMemoryError):
        step(total_mib * 0.3)
    gc.collect()
    assert step(total_mib * 0.15) == 4


def test_a_raw_request_runs_out_as_a_tensor_does() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        torch.cuda.caching_allocator_alloc(TOO_MUCH * MIB)
    address = torch.cuda.caching_allocator_alloc(MIB)
    torch.cuda.caching_allocator_delete(address)


def test_a_fraction_of_one_device_does_not_bind_the_other() -> None:
    with at_most(100):
        run_out(mib=200)
        assert block(200, "cuda:1").device.index == 1
        assert torch.cuda.get_per_process_memory_fraction(1) == 1
    assert block(200).nbytes == 200 * MIB


def test_a_snapshot_in_an_observer_holds_the_event(observe: Any) -> None:
    found: list[list[str]] = []
    observe(lambda *_: found.append([event["action"] for event in snapshot()["device_traces"][0]]))
    with recorded():
        run_out()
    assert found[0][-1] == "oom"
