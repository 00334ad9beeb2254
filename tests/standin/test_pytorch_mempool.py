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


def test_emptying_the_cache_within_a_pool_spares_it() -> None:
    pools = [new_pool() for _ in range(4)]

    def work(pool: torch.cuda.MemPool) -> None:
        with torch.cuda.use_mem_pool(pool):
            torch.empty(4, device="cuda")
            torch.cuda.empty_cache()

    in_threads(*(partial(work, pool) for pool in pools))
    assert [len(segments_of(pool)) for pool in pools] == [1, 1, 1, 1]


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
