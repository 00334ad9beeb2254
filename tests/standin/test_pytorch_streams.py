"""What PyTorch's own tests ask of memory on streams, in threads and in graphs, in our words."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import threading
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.standin.asking import MIB, advance_all, block, holds, in_threads, segments_of, stat

from gmlake.standin import control


def overlaps(tensor: torch.Tensor, begin: int, size_bytes: int) -> bool:
    return tensor.data_ptr() < begin + size_bytes and begin < tensor.data_ptr() + tensor.nbytes


# ---- streams


def test_memory_of_a_stream_is_used_again_there_at_once() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"), torch.cuda.stream(side):
        held = block(8)
        held.add_(1)
        address = held.data_ptr()
        del held
        assert block(8).data_ptr() == address
        advance_all(side)


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


def test_lending_to_the_stream_of_the_tensor_changes_nothing() -> None:
    with control.paced("manual"):
        held = block(8)
        held.record_stream(torch.cuda.current_stream())
        address = held.data_ptr()
        del held
        assert block(8).data_ptr() == address


def test_small_memory_is_lent_too() -> None:
    side = torch.cuda.Stream()
    with control.paced("manual"):
        lent = block(0.01)
        begin, size = lent.data_ptr(), lent.nbytes
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
        assert not any(overlaps(block(0.01), begin, size) for _ in range(8))
        advance_all(side)


def test_a_synchronized_device_has_nothing_that_waits() -> None:
    side = torch.cuda.Stream()
    active = stat("active.all.current")
    for _ in range(4):
        lent = block(8)
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        del lent
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert stat("active.all.current") == active


def test_what_is_lent_is_counted_as_active_and_not_as_allocated() -> None:
    side = torch.cuda.Stream()
    allocated, active = stat("allocation.all.current"), stat("active.all.current")
    with control.paced("manual"):
        lent = block(8)
        with torch.cuda.stream(side):
            lent.add_(1)
        lent.record_stream(side)
        assert stat("allocation.all.current") == allocated + 1
        del lent
        assert stat("allocation.all.current") == allocated
        assert stat("active.all.current") == active + 1
        advance_all(side)
    torch.cuda.synchronize()
    block(8)
    torch.cuda.empty_cache()
    assert stat("active.all.current") == active


def test_memory_is_freed_within_another_stream() -> None:
    side = torch.cuda.Stream()
    held = block(8)
    address = held.data_ptr()
    with torch.cuda.stream(side):
        del held
    assert block(8).data_ptr() == address


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


def test_each_thread_has_a_stream_of_its_own() -> None:
    addresses: dict[int, int] = {}
    barrier = threading.Barrier(4)

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            barrier.wait()
            held = block(4)
            addresses[index] = held.data_ptr()
            barrier.wait()

    in_threads(*(lambda index=index: work(index) for index in range(4)))
    assert len(set(addresses.values())) == 4


def test_threads_on_two_devices_do_not_meet() -> None:
    before = [torch.cuda.memory_allocated(device) for device in (0, 1)]
    kept: list[torch.Tensor] = []

    def work(device: int) -> None:
        with torch.cuda.device(device):
            kept.extend(torch.empty(100_000, device="cuda") for _ in range(50))

    in_threads(lambda: work(0), lambda: work(1))
    assert [part.device.index for part in kept].count(0) == 50
    after = [torch.cuda.memory_allocated(device) for device in (0, 1)]
    rounded = -(-400_000 // 512) * 512
    assert [new - old for new, old in zip(after, before, strict=True)] == [50 * rounded] * 2


def test_the_cache_is_emptied_while_others_allocate() -> None:
    stop = threading.Event()

    def empty() -> None:
        while not stop.is_set():
            torch.cuda.empty_cache()

    def churn() -> None:
        try:
            for step in range(150):
                block(step % 7 + 0.5)
        finally:
            stop.set()

    in_threads(empty, churn)
    torch.cuda.empty_cache()
    assert stat("allocation.all.current") == stat("active.all.current")


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


def test_a_capture_leaves_what_is_free_outside_alone() -> None:
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        address = block(30).data_ptr()
        graph.capture_begin()
        x.add_(1)
        inside = block(30)
        graph.capture_end()
        outside = block(30)
    assert not overlaps(inside, address, 30 * MIB)
    assert not overlaps(outside, inside.data_ptr(), inside.nbytes)
    graph.replay()
    torch.cuda.synchronize()


def test_what_was_allocated_before_is_freed_in_a_capture() -> None:
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(8, device="cuda")
    before = torch.cuda.memory_allocated()
    held = [block(30)]
    with torch.cuda.graph(graph):
        x.add_(1)
        held.clear()
        y = x + 1
    assert torch.cuda.memory_allocated() >= before
    graph.replay()
    torch.cuda.synchronize()
    del y, graph
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= before + 2 * 512  # the generator's numbers


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


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node:UserWarning")
def test_callables_become_graphs_that_train() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model.cuda()
    sample = torch.zeros(16, 64, device="cuda", requires_grad=True)
    twin: Any = torch.cuda.make_graphed_callables(model, (sample,))
    allocated = []
    for _ in range(4):
        twin(torch.zeros(16, 64, device="cuda", requires_grad=True)).sum().backward()
        model.zero_grad()
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[-1] == allocated[-2] == allocated[-3]
    control.reset_calls()
    twin(torch.zeros(16, 64, device="cuda", requires_grad=True)).sum().backward()
    assert control.calls()["cudaGraphLaunch"] == 2


def test_several_graphs_share_one_pool() -> None:
    x = torch.zeros(MIB, device="cuda")
    first = torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x + 1
    graphs, results = [first], [y]
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=first.pool()):
            results.append(results[-1] + 1)
        graphs.append(graph)
    assert {graph.pool() for graph in graphs} == {first.pool()}
    assert len({part.data_ptr() for part in results}) == 4
    handle = first.pool()
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    del graphs[1:], graph, first
    assert segments_of(handle)
    graphs.clear()
    results.clear()
    del y
    gc.collect()
    torch.cuda.empty_cache()
    assert segments_of(handle) == []


def test_a_result_of_a_graph_is_freed_after_the_graph() -> None:
    graph = torch.cuda.CUDAGraph()
    handle: Any = torch.cuda.graph_pool_handle()
    x = torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graph, pool=handle):
        y = x + 1
    del graph
    gc.collect()
    assert any(holds(part, y) for part in segments_of(handle))
    del y
    torch.cuda.empty_cache()
    assert segments_of(handle) == []


def test_graphs_are_captured_on_two_devices() -> None:
    results = []
    graphs = []
    for device in (0, 1):
        with torch.cuda.device(device):
            x = torch.zeros(MIB, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                results.append(x + 1)
            graphs.append(graph)
    for graph in graphs:
        graph.replay()
    for device in (0, 1):
        torch.cuda.synchronize(device)
    assert [part.device.index for part in results] == [0, 1]


def test_a_replay_among_allocations_keeps_its_memory() -> None:
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(2 * MIB, device="cuda")
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
    for mib in (8, 16, 3, 30):
        held = [block(mib) for _ in range(3)]
        graph.replay()
        assert not any(overlaps(part, y.data_ptr(), y.nbytes) for part in held)
        del held
        torch.cuda.empty_cache()
    torch.cuda.synchronize()
