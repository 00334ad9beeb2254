"""Memory pools of PyTorch, and allocators that programs bring along."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.accounting import reserved_bytes, statistics, sums
from tests.standin.running import PROGRAMS, run_program

from gmlake.standin import control

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the pluggable allocator of the folder `programs`."""
    library: Path = tmp_path_factory.mktemp("plugin") / "pluggable.so"
    source = PROGRAMS / "pluggable.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, source],  # noqa: S607
        check=True,
    )
    return library


def pool_segments(pool: Any) -> list[dict[str, Any]]:
    """Return the segments that the snapshot shows in a pool."""
    return [
        segment
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment["segment_pool_id"]) == tuple(pool.id)
    ]


def test_a_pool_keeps_its_memory_to_itself() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    outside = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    (segment,) = pool_segments(pool)
    assert segment["address"] == inside.data_ptr()
    assert segment["total_size"] == 30 * MIB
    assert [s["address"] for s in pool.snapshot()] == [inside.data_ptr()]
    total = sums(torch.cuda.memory_snapshot(), 0)
    assert total == statistics(total, 0)
    assert total["allocated_bytes"] == 60 * MIB

    address = inside.data_ptr()
    del inside
    again = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    assert again.data_ptr() != address
    with torch.cuda.use_mem_pool(pool):
        back = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    assert back.data_ptr() == address
    assert outside.data_ptr() != address


def test_a_pool_that_is_gone_gives_its_memory_back() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    del inside
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 30 * MIB
    del pool
    assert reserved_bytes() == [0, 0]


def test_pools_nest() -> None:
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        first = torch.empty(MIB, device="cuda")
        with torch.cuda.use_mem_pool(inner):
            second = torch.empty(MIB, device="cuda")
        third = torch.empty(MIB, device="cuda")
    in_outer = {segment["address"] for segment in pool_segments(outer)}
    in_inner = {segment["address"] for segment in pool_segments(inner)}
    assert second.data_ptr() in in_inner
    assert first.data_ptr() in in_outer
    assert third.data_ptr() == first.data_ptr() + first.nbytes


def test_a_pool_over_an_allocator_in_c(plugin: Path) -> None:
    library = ctypes.CDLL(str(plugin))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(plugin), "plug_alloc", "plug_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    live_bytes = ctypes.c_uint64.in_dll(library, "live_bytes")
    control.reset_calls()
    with torch.cuda.use_mem_pool(pool):
        small = torch.empty(100, device="cuda")
        large = torch.empty(34 * MIB, dtype=torch.uint8, device="cuda")
        # It asks for segments, which PyTorch's own allocator then divides.
        assert live_bytes.value == 2 * MIB + 34 * MIB
        assert control.calls()["cudaMalloc"] == 2
    assert sum(segment["total_size"] for segment in pool_segments(pool)) == live_bytes.value
    assert torch.cuda.memory_allocated() == 512 + 34 * MIB
    del small, large, pool
    assert reserved_bytes() == [0, 0]
    assert live_bytes.value == 0


@pytest.mark.parametrize("before", [(), ("gmlake",)])
def test_an_allocator_in_c_with_every_hook(plugin: Path, before: tuple[str, ...]) -> None:
    outcome = run_program("pluggable", str(plugin), *before)
    results = outcome.results
    assert outcome.code == 0, outcome.errors
    if before:
        mode, is_enabled, why = results["gmlake"]
        assert (mode, is_enabled) == ("off", False)
        assert "another allocator was put into PyTorch" in why
        assert outcome.errors.count("gmlake serves nothing in this process") == 1
    assert results["backend"] == "pluggable"
    asked = results["asked"]
    assert asked["alloc"] > 1000
    assert asked["free"] > 0
    for hook in ("init", "reset", "fraction", "record", "begin", "end", "release"):
        assert asked[hook] > 0, hook
    assert results["calls"]["cudaMalloc"] <= asked["alloc"]
    assert results["calls"]["cudaMalloc"] == results["calls"]["cudaFree"]
    assert results["device_count"] == 2
    assert results["fraction"] == 0.75
    assert results["is_stream_known"]
    assert results["is_begun"]
    assert results["is_released"]
    assert results["most_bytes"] > 0
    assert results["live_bytes"] == 0
    # What PyTorch cannot tell under a foreign allocator.
    assert "does not yet support getDeviceStats" in results["no_statistics"]
    assert "does not yet support snapshot" in results["no_snapshot"]
    assert "does not yet support createOrIncrefPool" in results["no_pool"]


def test_a_pool_with_an_allocator_of_its_own_is_left_alone(plugin: Path) -> None:
    outcome = run_program("registered", str(plugin))
    assert outcome.code == 0, outcome.errors
    for around in ("alone", "region", "exportable"):
        seen = outcome.results[around]
        assert all(seen.values()), (around, seen)
