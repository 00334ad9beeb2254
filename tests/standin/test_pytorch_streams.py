"""What PyTorch's own tests ask of memory on streams, in threads and in graphs, in our words."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import threading
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.standin.asking import MIB, advance_all, block, holds, in_threads, segments_of

from gmlake.standin import control


def overlaps(tensor: torch.Tensor, begin: int, size_bytes: int) -> bool:
    return tensor.data_ptr() < begin + size_bytes and begin < tensor.data_ptr() + tensor.nbytes


def test_memory_lent_to_two_streams_waits_for_both() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(8)
        begin = lent.data_ptr()
        for side in (first, second):
            with torch.cuda.stream(side):
                lent.add_(1)
            lent.record_stream(side)
        del lent
        advance_all(first)
        assert not overlaps(block(8), begin, 8 * MIB)
        advance_all(second)
        assert block(8).data_ptr() == begin


def test_memory_lent_twice_to_one_stream_waits_for_the_last() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(8)
        begin = lent.data_ptr()
        for _ in range(2):
            with torch.cuda.stream(side):
                lent.add_(1)
            lent.record_stream(side)
        del lent
        control.advance(side.cuda_stream, 1)
        assert not overlaps(block(8), begin, 8 * MIB)
        advance_all(side)
        assert block(8).data_ptr() == begin


def test_a_stream_that_ended_leaves_its_memory_to_be_given_back() -> None:
    reserved = torch.cuda.memory_reserved()
    for _ in range(40):  # PyTorch has 32 streams of a kind
        with torch.cuda.stream(torch.cuda.Stream()):
            block(2)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved


def test_a_tensor_of_another_device_is_lent_there() -> None:
    side = torch.cuda.Stream(device=1)
    with control.paced("manual"):
        lent = block(8, "cuda:1")
        begin = lent.data_ptr()
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        assert not overlaps(block(8, "cuda:1"), begin, 8 * MIB)
        advance_all(side)


def test_a_stream_of_another_device_uses_a_tensor_and_nothing_waits() -> None:
    other = torch.cuda.Stream(device=1)
    with control.paced("manual"):
        lent = block(8)
        begin = lent.data_ptr()
        with torch.cuda.stream(other):
            torch.empty(8, device="cuda:1").add_(1)
        lent.record_stream(other)
        control.reset_calls()
        del lent
        assert not overlaps(block(8), begin, 8 * MIB)
        assert not any("Synchronize" in name for name in control.calls())
        advance_all(other)
    assert overlaps(block(8), begin, 8 * MIB)


# ---- threads


def test_threads_allocate_and_free_what_others_allocated() -> None:
    allocated = torch.cuda.memory_allocated()
    shared: list[torch.Tensor] = []
    lock = threading.Lock()

    def work(seed: int) -> None:
        for step in range(100):
            tensor = torch.empty((seed * 37 + step) % 50 * 10_000 + 1, device="cuda")
            with lock:
                shared.append(tensor)
                if len(shared) > 20:
                    shared.pop((seed * step) % 20)
            del tensor

    in_threads(*(lambda seed=seed: work(seed) for seed in range(4)))
    places = sorted((part.data_ptr(), part.nbytes) for part in shared)
    assert all(a + size <= b for (a, size), (b, _) in pairwise(places))
    shared.clear()
    assert torch.cuda.memory_allocated() == allocated


# ---- graphs


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_capture_takes_memory_in_each_mode(mode: str) -> None:
    graph = torch.cuda.CUDAGraph()
    handle: Any = torch.cuda.graph_pool_handle()
    x = torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graph, pool=handle, capture_error_mode=mode):
        y = x + 1
        z = torch.cat([y, block(30).to(torch.float32)])
    assert all(any(holds(part, one) for part in segments_of(handle)) for one in (y, z))
    graph.replay()
    torch.cuda.synchronize()
    del y, z, graph
    gc.collect()
    torch.cuda.empty_cache()
    assert segments_of(handle) == []


def test_an_exception_within_a_capture_leaves_the_allocator_as_it_was() -> None:
    x = torch.zeros(8, device="cuda")
    handle: Any = torch.cuda.graph_pool_handle()

    def fail(graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.graph(graph, pool=handle):
            x.add_(1)
            block(30)
            raise KeyError

    for _ in range(3):
        with pytest.raises(KeyError):
            fail(torch.cuda.CUDAGraph())
    outside = block(30)
    assert not any(holds(part, outside) for part in segments_of(handle))
    gc.collect()
    torch.cuda.empty_cache()
    assert segments_of(handle) == []
