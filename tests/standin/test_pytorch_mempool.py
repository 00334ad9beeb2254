"""What PyTorch's own tests ask of torch.cuda.MemPool, in our words; see test_pytorch_memory.py."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import statistics, sums
from tests.standin.asking import MIB, C, at_most, block, in_threads

from gmlake import Lake, _core

if TYPE_CHECKING:
    from collections.abc import Iterator

# A setting that is left out begins anew, all but these.
USUAL = "expandable_segments:False,graph_capture_record_stream_reuse:False"


def new_pool(**options: Any) -> torch.cuda.MemPool:
    return torch.cuda.MemPool(**options)


def lives_in_gmlake() -> int:
    """Return the bytes that gmlake serves on the first device."""
    lake = _core.torch_lake(Lake, 0)
    return lake.stats()["requested_bytes"] if lake else 0


def segments() -> list[dict[str, Any]]:
    """Return what memory_snapshot() does, which in 2.11 lets go of numbers that it does not own."""
    found: list[dict[str, Any]] = torch.cuda.memory._snapshot()["segments"]
    return found


def segments_of(pool: torch.cuda.MemPool) -> list[dict[str, Any]]:
    return [found for found in segments() if tuple(found["segment_pool_id"]) == pool.id]


def size_of(pool: torch.cuda.MemPool) -> int:
    return sum(segment["total_size"] for segment in segments_of(pool))


@pytest.fixture(autouse=True)
def _begins_empty(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which more of gmlake's memory is in use than before."""
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    failed, before = request.session.testsfailed, lives_in_gmlake()
    yield
    C._accelerator_setAllocatorSettings(USUAL)
    gc.collect()
    torch.cuda.empty_cache()
    if request.session.testsfailed == failed:  # what failed is kept alive by its traceback
        assert lives_in_gmlake() <= before


def test_every_pool_has_a_number_of_its_own() -> None:
    handle = torch.cuda.graph_pool_handle()
    pool = new_pool()
    assert (handle[0] == 0) == (pool.id[0] == 0)
    assert pool.id[1] > handle[1]
    found: list[tuple[int, int]] = []
    in_threads(*[lambda: found.append(new_pool().id)] * 4)
    assert len({*found, pool.id}) == 5


def test_a_pool_counts_who_uses_it() -> None:
    pool = new_pool()
    assert pool.use_count() == 1
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
    assert pool.use_count() == 1


def test_small_tensors_share_a_segment_of_a_pool() -> None:
    pool = new_pool()
    held, counts = [], []
    for _ in range(3):
        with torch.cuda.use_mem_pool(pool):
            held.append(block(1))
        outside = block(1)
        counts.append(len(segments_of(pool)))
    assert counts == [1, 1, 2]
    ranges = [
        (found["address"], found["address"] + found["total_size"]) for found in segments_of(pool)
    ]
    assert not any(begin <= outside.data_ptr() < end for begin, end in ranges)
    total = sums(segments(), 0)
    assert total == statistics(total, 0)


def test_a_pool_that_ends_gives_its_memory_back() -> None:
    reserved, served = torch.cuda.memory_reserved(), lives_in_gmlake()
    pool = new_pool()
    with torch.cuda.use_mem_pool(pool):
        block(30)
    assert torch.cuda.memory_reserved() == reserved + 30 * MIB
    del pool
    assert torch.cuda.memory_reserved() == reserved
    assert lives_in_gmlake() == served


def test_a_tensor_outlives_its_pool() -> None:
    served = lives_in_gmlake()

    def make() -> torch.Tensor:
        with torch.cuda.use_mem_pool(new_pool()):
            return block(16)

    tensor = make()
    gc.collect()
    torch.cuda.empty_cache()
    assert any(segment["address"] == tensor.data_ptr() for segment in segments())
    reserved = torch.cuda.memory_reserved()
    del tensor
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved - 16 * MIB
    assert lives_in_gmlake() == served


def test_the_end_of_a_pool_leaves_other_memory_cached() -> None:
    pool = new_pool()
    outside = block(4)
    with torch.cuda.use_mem_pool(pool):
        inside = block(4)
    address = outside.data_ptr()
    del inside, outside, pool
    assert any(segment["address"] == address for segment in segments())


def test_a_pool_may_help_out_where_memory_ends() -> None:
    private, helping = new_pool(), new_pool(use_on_oom=True)
    with at_most(80):
        with torch.cuda.use_mem_pool(private):
            a = block(40)
        with torch.cuda.use_mem_pool(helping):
            b = block(40)
        address = b.data_ptr()
        with pytest.raises(torch.OutOfMemoryError):
            block(40)
        del a, b
        c = block(30)
        assert c.data_ptr() == address
        with pytest.raises(torch.OutOfMemoryError):
            block(30)
        del c
        with torch.cuda.use_mem_pool(helping):
            assert block(20).data_ptr() == address
        del helping, private


def test_a_pool_that_is_gone_helps_nobody() -> None:
    with at_most(40):
        for _ in range(10):
            pool = new_pool(use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                block(40)
            del pool
        pool = new_pool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            block(40)
        held = [block(20), block(20)]
        begin = segments_of(pool)[0]["address"]
        assert sorted(part.data_ptr() - begin for part in held) == [0, 20 * MIB]
        del held, pool


def test_the_end_of_memory_within_a_pool_is_pytorchs_exception() -> None:
    pool = new_pool()
    with torch.cuda.use_mem_pool(pool):
        with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allo"):
            block(1 << 22)
        assert block(30).nbytes == 30 * MIB
    assert size_of(pool) == 30 * MIB


def test_blocks_of_a_pool_need_not_be_split() -> None:
    split, whole = new_pool(), new_pool(no_split=True)
    held = []
    for pool in (split, whole) * 2:
        with torch.cuda.use_mem_pool(pool):
            held.append(block(4))
    assert [len(found["blocks"]) for found in segments_of(split)] == [3]
    assert [len(found["blocks"]) for found in segments_of(whole)] == [1, 1]


def test_emptying_the_cache_within_a_pool_spares_it() -> None:
    pools = [new_pool() for _ in range(4)]

    def work(pool: torch.cuda.MemPool) -> None:
        with torch.cuda.use_mem_pool(pool):
            torch.empty(4, device="cuda")
            torch.cuda.empty_cache()

    in_threads(*(partial(work, pool) for pool in pools))
    assert [len(segments_of(pool)) for pool in pools] == [1, 1, 1, 1]


def test_the_pool_that_was_entered_last_serves() -> None:
    pools = [new_pool() for _ in range(3)]
    held = []
    with torch.cuda.use_mem_pool(pools[0]):
        held.append(block(20))
        with torch.cuda.use_mem_pool(pools[1]):
            held.append(block(20))
            with torch.cuda.use_mem_pool(pools[2]):
                held.append(block(20))
            held.append(block(20))
        held.append(block(20))
    assert [len(segments_of(pool)) for pool in pools] == [2, 2, 1]


def test_a_pool_serves_the_thread_that_entered_it() -> None:
    pool = new_pool()
    found: list[torch.Tensor] = []
    with torch.cuda.use_mem_pool(pool):
        block(1)
        thread = threading.Thread(target=lambda: found.append(block(1)))
        thread.start()
        thread.join()
    (segment,) = segments_of(pool)
    assert segment["active_size"] == 0
    begin = segment["address"]
    assert not begin <= found[0].data_ptr() < begin + segment["total_size"]


def test_segments_of_a_pool_with_an_allocator_do_not_grow() -> None:
    C._accelerator_setAllocatorSettings("expandable_segments:True")
    pool = new_pool()
    with torch.cuda.use_mem_pool(pool):
        inside = block(1)
    outside = block(1)
    assert [found["is_expandable"] for found in segments_of(pool)] == [True]
    (other,) = (
        found
        for found in segments()
        if 0 <= outside.data_ptr() - found["address"] < found["total_size"]
    )
    assert other["is_expandable"]
    del inside


def test_a_graph_is_captured_into_a_pool() -> None:
    pool = new_pool()
    x = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    handle: Any = pool.id
    with torch.cuda.graph(graph, pool=handle):
        y = x + 1
    (segment,) = segments_of(pool)
    assert 0 <= y.data_ptr() - segment["address"] < segment["total_size"]
    graph.replay()
    torch.cuda.synchronize()
    del y, graph
    gc.collect()
    torch.cuda.empty_cache()
    served = lives_in_gmlake()
    del pool
    torch.cuda.empty_cache()
    assert lives_in_gmlake() == served


def test_memory_of_a_pool_is_used_again_in_the_next() -> None:
    reserved = set()
    for _ in range(20):
        with torch.cuda.use_mem_pool(new_pool()):
            held = [block(30), block(50)]
        del held
        gc.collect()
        torch.cuda.empty_cache()
        lake = _core.torch_lake(Lake, 0)
        reserved.add(lake.stats()["reserved_bytes"] if lake else 0)
    assert len(reserved) == 1
