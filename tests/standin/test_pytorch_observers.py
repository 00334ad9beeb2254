"""What PyTorch's own tests ask of the end of memory, and of who is told of it, in our words."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.asking import MIB, C, at_most, block, recorded, snapshot, stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


def test_an_observer_is_told_device_size_total_and_free(observe: Any) -> None:
    figures: list[tuple[int, ...]] = []
    observe(lambda *told: figures.append(told))
    held = block(30)
    run_out()
    ((device, asked, total, free),) = figures
    assert (device, asked) == (0, TOO_MUCH * MIB)
    assert (free, total) == torch.cuda.mem_get_info()
    assert held.nbytes <= total - free


def test_an_observer_is_told_of_the_device_that_ran_out(observe: Any) -> None:
    devices: list[int] = []
    observe(lambda *told: devices.append(told[0]))
    run_out("cuda:1")
    run_out("cuda:0")
    assert devices == [1, 0]


def test_an_observer_is_told_before_the_exception(observe: Any) -> None:
    order: list[str] = []
    observe(lambda *_: order.append("observer"))
    try:
        block(TOO_MUCH)
    except torch.OutOfMemoryError:
        order.append("exception")
    assert order == ["observer", "exception"]


def test_every_observer_is_told_in_their_order(observe: Any) -> None:
    order: list[int] = []
    observe(lambda *_: order.append(0))
    for number in (1, 2):
        C._cuda_attach_out_of_memory_observer(lambda *_, number=number: order.append(number))
    run_out()
    assert order == [0, 1, 2]


def test_an_observer_is_not_told_of_what_was_found_in_the_end(observe: Any) -> None:
    told: list[int] = []
    observe(lambda *_: told.append(1))
    with at_most(120):
        held = [block(40) for _ in range(3)]
        held.clear()
        assert block(110).nbytes == 110 * MIB  # what is idle has to go first
    assert told == []


def test_an_observer_keeps_a_snapshot_that_names_the_line(observe: Any, tmp_path: Path) -> None:
    path = tmp_path / "oom.pickle"
    observe(lambda *_: torch.cuda.memory._dump_snapshot(str(path)))

    def the_model() -> list[torch.Tensor]:
        return [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]

    with recorded():
        held = the_model()
        run_out()
    with path.open("rb") as file:
        found = pickle.load(file)
    live = [
        part
        for segment in found["segments"]
        for part in segment["blocks"]
        if part["state"] == "active_allocated" and part["frames"]
    ]
    assert len(live) == len(held)
    assert all("the_model" in json.dumps(part["frames"]) for part in live)
    assert sum(part["size"] for part in live) == 60 * MIB


def test_an_observer_may_ask_for_numbers(observe: Any) -> None:
    found: list[int] = []
    observe(lambda *_: found.append(torch.cuda.memory_allocated()))
    held = block(30)
    allocated = torch.cuda.memory_allocated()
    run_out()
    assert found == [allocated]
    assert held.nbytes <= allocated


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


def test_the_end_of_memory_is_counted() -> None:
    before = [stat("num_ooms", device) for device in (0, 1)]
    for _ in range(3):
        run_out()
    run_out("cuda:1")
    assert [stat("num_ooms", device) for device in (0, 1)] == [before[0] + 3, before[1] + 1]
    torch.cuda.reset_accumulated_memory_stats(0)
    assert stat("num_ooms", 0) == 0
    assert stat("num_ooms", 1) == before[1] + 1


def test_a_retry_is_counted() -> None:
    before = stat("num_alloc_retries")
    with at_most(120):
        held = [block(40) for _ in range(3)]
        held.clear()
        block(110)
    assert stat("num_alloc_retries") >= before
    before = stat("num_alloc_retries")
    run_out()
    assert stat("num_alloc_retries") == before + 1


def test_the_text_tells_what_is_free_and_allocated() -> None:
    held = block(30)
    text = run_out()
    assert text.startswith("CUDA out of memory. Tried to allocate 4096.00 GiB. GPU 0 has a total ")
    assert "total capacity of 80.00 GiB of which " in text
    assert "is free" in text
    assert held.numel() > 0


def test_a_program_goes_on_after_the_end_of_memory() -> None:
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(5):
        held = [block(8), block(0.1)]
        run_out()
        held[0].add_(1)
        del held
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == allocated
    assert torch.cuda.memory_reserved() <= reserved


def test_what_ran_out_in_a_thread_is_thrown_there() -> None:
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(run_out())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [text[:19] for text in texts] == ["CUDA out of memory."] * 4


def test_what_ran_out_in_a_backward_is_thrown_where_it_was_called() -> None:
    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            block(TOO_MUCH)
            return gradients[0]

    x = torch.zeros(8, device="cuda", requires_grad=True)
    out: Any = Greedy.apply(x)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        out.sum().backward()
    x.grad = None
    x.sum().backward()
    assert x.grad is not None


def test_memory_of_a_failed_step_is_there_for_a_smaller_one() -> None:
    total_mib = torch.cuda.get_device_properties(0).total_memory // MIB

    def step(mib: float) -> int:
        return len([block(mib) for _ in range(4)])

    with pytest.raises(torch.OutOfMemoryError):
        step(total_mib * 0.3)
    gc.collect()
    assert step(total_mib * 0.15) == 4


def test_a_storage_that_cannot_grow_stays_what_it_was() -> None:
    held = block(30)
    address = held.data_ptr()
    with pytest.raises(torch.OutOfMemoryError):
        held.untyped_storage().resize_(TOO_MUCH * MIB)
    assert held.data_ptr() == address
    assert held.untyped_storage().nbytes() == 30 * MIB


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
