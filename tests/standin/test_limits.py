"""What happens when a device has no more memory."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import reserved_bytes
from tests.standin.training import Trainer

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30


def block(gib: int, device: str = "cuda") -> torch.Tensor:
    """Return a tensor of that many GiB."""
    return torch.empty(gib * GIB, dtype=torch.uint8, device=device)


@pytest.fixture(autouse=True)
def _all_memory_is_allowed() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def counters() -> tuple[int, int]:
    """Return how often PyTorch gave up, and how often it tried again."""
    stats = torch.cuda.memory_stats()
    return stats["num_ooms"], stats["num_alloc_retries"]


def test_too_large_a_request_is_refused_in_pytorchs_words() -> None:
    ooms, retries = counters()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        block(100)
    text = str(caught.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 100.00 GiB.")
    assert "GPU 0 has a total capacity of 80.00 GiB of which" in text
    assert "GiB is free" in text
    assert counters() == (ooms + 1, retries + 1)
    assert torch.cuda.memory_reserved() == 0


def test_what_is_in_use_stands_in_the_message() -> None:
    held = block(50)
    with pytest.raises(torch.OutOfMemoryError, match=r"50\.00 GiB is allocated by PyTorch"):
        block(40)
    assert held.numel() == torch.cuda.memory_allocated()


def test_training_goes_on_after_a_refusal() -> None:
    trainer = Trainer()
    trainer.step()
    trainer.step()
    before = torch.cuda.memory_allocated()
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            block(100)
        trainer.step()
    assert torch.cuda.memory_allocated() == before


def test_cached_memory_is_given_back_before_a_request_fails() -> None:
    ooms, retries = counters()
    cached = block(60)
    del cached
    assert torch.cuda.memory_reserved() == 60 * GIB
    control.reset_calls()
    held = block(70)
    assert torch.cuda.memory_reserved() == held.numel() == 70 * GIB
    assert counters() == (ooms, retries + 1)
    calls = control.calls()
    assert calls["cudaMalloc"] == 2
    assert calls["cudaFree"] == 1


def test_the_largest_batch_can_be_searched_for() -> None:
    largest = 0
    for gib in (1, 2, 4, 8, 16, 32, 64, 128):
        try:
            first, second = block(gib), block(gib)
        except torch.OutOfMemoryError:
            break
        largest = gib
        del first, second
    assert largest == 32


def test_each_device_has_its_own_memory() -> None:
    held = block(70, "cuda:0")
    other = block(70, "cuda:1")
    with pytest.raises(torch.OutOfMemoryError, match="GPU 1 has a total capacity"):
        block(70, "cuda:1")
    assert held.numel() + other.numel() == 140 * GIB


def test_a_fraction_of_the_memory_is_all_that_is_allowed() -> None:
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    held = block(30)
    ooms, _ = counters()
    with pytest.raises(torch.OutOfMemoryError, match=r"40\.00 GiB allowed"):
        block(20)
    assert counters()[0] == ooms + 1
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert block(20).numel() + held.numel() == 50 * GIB


def test_observers_hear_of_it_and_the_history_keeps_it() -> None:
    heard: list[tuple[int, ...]] = []
    binding: Any = torch._C  # noqa: SLF001 (its only name)
    binding._cuda_attach_out_of_memory_observer(  # noqa: SLF001
        lambda *numbers: heard.append(numbers)
    )
    torch.cuda.memory._record_memory_history(max_entries=1000)  # noqa: SLF001
    free_bytes = torch.cuda.mem_get_info()[0]
    with pytest.raises(torch.OutOfMemoryError):
        block(90)
    events = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
    assert heard == [(0, 90 * GIB, 80 * GIB, free_bytes)]
    (event,) = (event for event in events if event["action"] == "oom")
    assert event["size"] == 90 * GIB
    assert event["device_free"] == free_bytes


def test_nothing_remains_of_a_refusal() -> None:
    small = torch.empty(1, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.cat([small.expand(10 * GIB), small.expand(10 * GIB)])
    del small
    assert reserved_bytes() == [0, 0]
