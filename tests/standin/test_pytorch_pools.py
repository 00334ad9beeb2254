"""More of what PyTorch's own tests ask of torch.cuda.MemPool, in our words."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import pytest
import torch
from tests.standin.asking import (
    MIB,
    C,
    at_most,
    block,
    holds,
    in_threads,
    recorded,
    segments_of,
    stat,
)

use = torch.cuda.use_mem_pool


def pool_of(**options: Any) -> torch.cuda.MemPool:
    return torch.cuda.MemPool(**options)


def size_of(pool: torch.cuda.MemPool) -> int:
    return sum(segment["total_size"] for segment in segments_of(pool.id))


def is_in(pool: torch.cuda.MemPool, tensor: torch.Tensor) -> bool:
    return any(holds(segment, tensor) for segment in segments_of(pool.id))


def test_a_pool_cannot_be_entered_twice() -> None:
    pool = pool_of()
    refusals: list[str] = []

    def again() -> None:
        with pytest.raises(RuntimeError) as caught, use(pool):
            pass
        refusals.append(str(caught.value))
        C._cuda_releasePool(0, pool.id)  # PyTorch counts a use that it refuses

    with use(pool):
        again()
        in_threads(again)
        inside = block(20)
    outside = block(20)
    assert [text.startswith("beginAllocateToPool: already") for text in refusals] == [True] * 2
    assert is_in(pool, inside)
    assert not is_in(pool, outside)
    with use(pool):
        assert is_in(pool, block(20))


def test_a_pool_is_left_by_an_exception() -> None:
    pool = pool_of()

    def fail() -> None:
        with use(pool):
            block(20)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert pool.use_count() == 1
    assert not is_in(pool, block(20))


def test_pools_of_threads_do_not_mix() -> None:
    pools = [pool_of() for _ in range(4)]
    kept: list[list[torch.Tensor]] = [[] for _ in pools]
    barrier = threading.Barrier(len(pools))

    def work(index: int) -> None:
        with use(pools[index]):
            barrier.wait()
            for _ in range(20):
                kept[index].append(block(2))
            barrier.wait()

    in_threads(*(lambda index=index: work(index) for index in range(len(pools))))
    for index, pool in enumerate(pools):
        for other, tensors in enumerate(kept):
            assert [is_in(pool, part) for part in tensors] == [index == other] * 20


def test_a_pool_goes_from_thread_to_thread() -> None:
    pool = pool_of()
    kept: list[torch.Tensor] = []

    def work() -> None:
        with use(pool):
            kept.append(block(20))

    work()
    in_threads(work)
    in_threads(work)
    assert [is_in(pool, part) for part in kept] == [True] * 3
    assert pool.use_count() == 1


def test_a_backward_within_a_pool_takes_its_memory_elsewhere() -> None:
    pool = pool_of()
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    with use(pool):
        y = x * 2
        y.sum().backward()
    assert is_in(pool, y)
    assert x.grad is not None
    assert not is_in(pool, x.grad)


def test_a_pool_of_one_device_leaves_the_other_alone() -> None:
    pool = pool_of()
    with use(pool, device=1):
        on_first, on_second = block(20), block(20, "cuda:1")
    assert not is_in(pool, on_first)
    assert is_in(pool, on_second)
    assert {segment["device"] for segment in segments_of(pool.id)} == {1}


def test_a_pool_serves_two_devices() -> None:
    pool = pool_of()
    with use(pool, device=0), use(pool, device=1):
        held = [block(20), block(20, "cuda:1")]
    assert all(is_in(pool, part) for part in held)
    assert {segment["device"] for segment in segments_of(pool.id)} == {0, 1}
    reserved = [torch.cuda.memory_reserved(device) for device in (0, 1)]
    del held, pool
    gc.collect()
    torch.cuda.empty_cache()
    after = [torch.cuda.memory_reserved(device) for device in (0, 1)]
    assert after[0] <= reserved[0] - 20 * MIB
    assert after[1] <= reserved[1] - 20 * MIB


def test_memory_of_a_pool_is_counted_with_the_rest() -> None:
    pool = pool_of()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    count, segments = stat("allocation.all.current"), stat("segment.all.current")
    with use(pool):
        held = [block(20), block(20)]
    assert torch.cuda.memory_allocated() == allocated + 40 * MIB
    assert torch.cuda.memory_reserved() == reserved + 40 * MIB == reserved + size_of(pool)
    assert stat("allocation.all.current") == count + 2
    assert stat("segment.all.current") == segments + 2
    held.clear()
    assert torch.cuda.memory_allocated() == allocated
    assert torch.cuda.memory_reserved() == reserved + 40 * MIB


@pytest.mark.parametrize("order", ["graph first", "pool first"])
def test_a_graph_and_its_pool_end_in_either_order(order: str) -> None:
    reserved = torch.cuda.memory_reserved()
    pool, graph = pool_of(), torch.cuda.CUDAGraph()
    handle: Any = pool.id
    x = torch.zeros(8, device="cuda")
    with torch.cuda.graph(graph, pool=handle):
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    if order == "graph first":
        del graph, y, pool
    else:
        del pool
        graph.replay()
        torch.cuda.synchronize()
        assert torch.cuda.memory_reserved() > reserved
        del y, graph
    del x
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved


def test_a_pool_whose_tensors_are_freed_by_another_thread() -> None:
    pool = pool_of()
    with use(pool):
        kept = [block(20)]
    in_threads(kept.clear)
    (segment,) = segments_of(pool.id)
    assert segment["active_size"] == 0
    with use(pool):
        assert block(20).data_ptr() == segment["address"]


def test_memory_of_a_pool_is_used_again_by_it_alone() -> None:
    pool = pool_of()
    with use(pool):
        address = block(20).data_ptr()
    outside = block(20)
    with use(pool):
        inside = block(20)
    assert outside.data_ptr() != address
    assert inside.data_ptr() == address


def test_memory_of_a_pool_stays_for_its_stream() -> None:
    pool, side = pool_of(), torch.cuda.Stream()
    with use(pool):
        with torch.cuda.stream(side):
            address = block(20).data_ptr()
        assert block(20).data_ptr() != address
        with torch.cuda.stream(side):
            assert block(20).data_ptr() == address
    assert {segment["stream"] for segment in segments_of(pool.id)} == {0, side.cuda_stream}


def test_emptying_the_cache_outside_leaves_an_idle_pool_alone() -> None:
    pool = pool_of()
    with use(pool):
        block(20)
    block(20)
    torch.cuda.empty_cache()
    assert size_of(pool) == 20 * MIB


def test_a_pool_that_is_not_split_grows_by_whole_requests() -> None:
    pool = pool_of(no_split=True)
    with use(pool):
        held = [block(mib) for mib in (30, 5, 0.1)]
    sizes = sorted(segment["total_size"] // MIB for segment in segments_of(pool.id))
    assert sizes == [2, 20, 30]
    del held[1]
    with use(pool):
        smaller = block(3)
    assert size_of(pool) == 52 * MIB
    assert is_in(pool, smaller)


def test_a_pool_that_helps_does_so_for_other_threads() -> None:
    pool = pool_of(use_on_oom=True)
    with at_most(80):
        with use(pool):
            block(60)
        kept: list[torch.Tensor] = []
        in_threads(lambda: kept.append(block(60)))
        assert is_in(pool, kept[0])
        kept.clear()


def test_the_snapshot_of_a_pool_has_events_when_they_are_asked_for() -> None:
    pool = pool_of()
    with recorded():
        with use(pool):
            inside = block(20)
        found = {
            is_wanted: C._cuda_memorySnapshot((*pool.id, is_wanted))["device_traces"]
            for is_wanted in (True, False)
        }
    assert inside.data_ptr() in {event["addr"] for event in found[True][0]}
    assert not any(found[False])


REST = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)  # size, device, stream
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, *REST)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *REST)


def test_a_pool_has_an_allocator_of_its_own() -> None:
    runtime = ctypes.CDLL(None)
    asked: list[int] = []

    def allocate(size: int, device: int, stream: int | None) -> int | None:  # noqa: ARG001
        address = ctypes.c_void_p()
        asked.append(size)
        assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
        return address.value

    def free(address: int, size: int, device: int, stream: int | None) -> None:  # noqa: ARG001
        asked.remove(size)
        assert runtime.cudaFree(ctypes.c_void_p(address)) == 0

    functions = ALLOCATE(allocate), FREE(free)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    pool = torch.cuda.MemPool(C._cuda_customAllocator(*addresses))
    reserved = torch.cuda.memory_reserved()
    with use(pool):
        held = [block(20), block(30)]
    assert asked == [20 * MIB, 30 * MIB]
    assert torch.cuda.memory_reserved() == reserved + 50 * MIB
    assert sorted(part["total_size"] for part in segments_of(pool.id)) == [20 * MIB, 30 * MIB]
    held.clear()
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved
    assert asked == []


def test_many_pools_come_and_go() -> None:
    reserved = torch.cuda.memory_reserved()
    pools = [pool_of() for _ in range(30)]
    held = []
    for pool in pools:
        with use(pool):
            held.append(block(4))
    assert torch.cuda.memory_reserved() == reserved + 30 * 20 * MIB
    for _ in range(15):
        pools.pop(7)
        held.pop(7)
    pool = pools[0]
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved + 15 * 20 * MIB
    assert is_in(pool, held[0])
    del pools, held, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved


def test_routing_by_stream_takes_what_the_stream_asks_for() -> None:
    pool, side = pool_of(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        C._cuda_beginAllocateCurrentStreamToPool(0, pool.id)
        inside = block(20)
    outside = block(20)
    with torch.cuda.stream(side):
        again = block(20)
        C._cuda_endAllocateToPool(0, pool.id)
        after = block(20)
    C._cuda_releasePool(0, pool.id)
    assert [is_in(pool, part) for part in (inside, outside, again, after)] == [
        True,
        False,
        True,
        False,
    ]
