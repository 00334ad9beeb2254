"""What PyTorch's own tests ask of graphs' memory, in our words; see test_pytorch_memory.py."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
C: Any = torch._C
# A setting that is left out begins anew, all but these.
USUAL = "expandable_segments:False,graph_capture_record_stream_reuse:False"


@pytest.fixture(autouse=True)
def _begins_empty() -> Iterator[None]:
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    yield
    C._accelerator_setAllocatorSettings(USUAL)


def stats_of(pool: str) -> list[int]:
    """Return what is active, in blocks and bytes, and what is reserved."""
    stats = torch.cuda.memory_stats()
    active = [stats[f"{name}.{pool}.current"] for name in ("active", "active_bytes")]
    return [*active, torch.cuda.memory_reserved()]


def difference(after: list[int], before: list[int]) -> list[int]:
    return [new - old for new, old in zip(after, before, strict=True)]


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))


SIZES = [
    (512, "small_pool", 1, 2),
    (MIB, "small_pool", 2, 2),
    (MIB + 512, "large_pool", 1, 20),
    (10 * MIB - 512, "large_pool", 2, 20),
    (10 * MIB + 512, "large_pool", 3, 12),
]


@pytest.mark.parametrize(("size_bytes", "pool", "segments", "mib"), SIZES)
def test_a_graph_reserves_what_its_capture_needed(
    size_bytes: int, pool: str, segments: int, mib: int
) -> None:
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        a = torch.ones(size_bytes // 4, device="cuda")
        # The random generator may keep numbers for graphs, outside of their pools.
        other = torch.cuda.CUDAGraph()
        other.capture_begin()
        a.clone()
        other.capture_end()
        before = stats_of(pool)
        graph.capture_begin()
        b = a.clone()
        for _ in range(5):
            b = b.clone() + 1
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    expected = [1, size_bytes, segments * mib * MIB]
    assert difference(stats_of(pool), before) == expected
    graph.replay()
    torch.cuda.empty_cache()
    assert difference(stats_of(pool), before) == expected
    graph.replay()

    # What outlives its graph stays where it is, and only what holds it.
    address = b.data_ptr()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    assert difference(stats_of(pool), before) == [1, size_bytes, mib * MIB]
    assert torch.empty(size_bytes // 4, device="cuda").data_ptr() != address
    assert b.data_ptr() == address
    torch.cuda.synchronize()
    del other


def test_a_capture_asks_for_no_event_of_memory_that_was_lent() -> None:
    lender, capturing, other = (torch.cuda.Stream() for _ in range(3))
    a = torch.zeros(3, device="cuda")
    lent = torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with control.paced("manual"):
        with torch.cuda.stream(lender):
            lent.record_stream(lender)
            lent.fill_(1)
        del lent
        with torch.cuda.stream(capturing):
            graph.capture_begin()
            control.reset_calls()
            b = a.clone()
            other.wait_stream(capturing)
            with torch.cuda.stream(other):
                b.fill_(1)
                b.record_stream(other)
                address = b.data_ptr()
                del b
            capturing.wait_stream(other)
            c = a.clone()
            calls = control.calls()
            graph.capture_end()
        assert calls["cudaEventQuery"] + calls["cuEventQuery"] == 0
        assert c.data_ptr() != address
        advance_all(lender)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    active = torch.cuda.memory_stats()["active.all.current"]
    assert active == torch.cuda.memory_stats()["allocation.all.current"]


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_another_thread_may_allocate_during_a_capture(mode: str) -> None:
    graph = torch.cuda.CUDAGraph()
    found: list[int] = []

    def allocate() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for size in (1024, 50 * MIB):
                address = torch.cuda.caching_allocator_alloc(size)
                found.append(address)
                torch.cuda.caching_allocator_delete(address)

    x = torch.zeros(2000, device="cuda")
    with torch.cuda.graph(graph, capture_error_mode=mode):
        y = x + x + x
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    assert len(found) == 2
    begin = y.data_ptr() // (2 * MIB)
    assert all(address // (2 * MIB) != begin for address in found)
    graph.replay()
    torch.cuda.synchronize()


def test_a_graph_is_captured_again_after_its_reset() -> None:
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    x = torch.zeros(2000, device="cuda")
    reserved = []
    for _ in range(5):
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            y = x + 1
        for _ in range(2):
            graph.instantiate()
            graph.replay()
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
        del y
        graph.reset()
        torch.cuda.empty_cache()
    assert len(set(reserved)) == 1


def test_the_live_tensors_of_a_pool_are_known() -> None:
    pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        x = torch.ones(4, device="cuda")

    def are_live(addresses: set[int]) -> bool:
        return bool(C._cuda_checkPoolLiveAllocations(0, pool, addresses))

    assert are_live({x.data_ptr()})
    assert not are_live(set())
    del x
    assert are_live(set())


def test_an_executable_graph_has_memory_of_the_device_until_it_goes() -> None:
    def rest_bytes() -> int:
        return int(torch.cuda.mem_get_info()[0]) + torch.cuda.memory_reserved()

    number, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
    before = rest_bytes()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            number.add_(1)
    assert before - rest_bytes() == 1000 * 4096
    graph.reset()
    assert rest_bytes() == before
