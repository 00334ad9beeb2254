"""More of what PyTorch's own tests ask of torch.cuda.MemPool, in our words."""

# Much of this has private names only.
# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
from tests.standin.asking import (
    MIB,
    block,
    holds,
    segments_of,
)

use = torch.cuda.use_mem_pool


def pool_of(**options: Any) -> torch.cuda.MemPool:
    return torch.cuda.MemPool(**options)


def size_of(pool: torch.cuda.MemPool) -> int:
    return sum(segment["total_size"] for segment in segments_of(pool.id))


def is_in(pool: torch.cuda.MemPool, tensor: torch.Tensor) -> bool:
    return any(holds(segment, tensor) for segment in segments_of(pool.id))


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


def test_emptying_the_cache_outside_leaves_an_idle_pool_alone() -> None:
    pool = pool_of()
    with use(pool):
        block(20)
    block(20)
    torch.cuda.empty_cache()
    assert size_of(pool) == 20 * MIB
