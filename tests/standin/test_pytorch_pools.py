"""More of what PyTorch's own tests ask of torch.cuda.MemPool, in our words."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import gc
from typing import Any

import torch
from tests.standin.asking import (
    MIB,
    C,
    at_most,
    block,
    holds,
    in_threads,
    segments_of,
)

use = torch.cuda.use_mem_pool


def pool_of(**options: Any) -> torch.cuda.MemPool:
    return torch.cuda.MemPool(**options)


def size_of(pool: torch.cuda.MemPool) -> int:
    return sum(segment["total_size"] for segment in segments_of(pool.id))


def is_in(pool: torch.cuda.MemPool, tensor: torch.Tensor) -> bool:
    return any(holds(segment, tensor) for segment in segments_of(pool.id))


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


def test_memory_of_a_pool_is_used_again_by_it_alone() -> None:
    pool = pool_of()
    with use(pool):
        address = block(20).data_ptr()
    outside = block(20)
    with use(pool):
        inside = block(20)
    assert outside.data_ptr() != address
    assert inside.data_ptr() == address


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
