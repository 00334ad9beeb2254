"""CUDA graphs: capture, replay, and the memory that belongs to them."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.standin.accounting import reserved_bytes, statistics, sums
from tests.standin.training import CONFIG, Trainer, memory_calls
from torch import nn

from gmlake.standin import control

MIB = 1 << 20


def warm_up(x: torch.Tensor) -> None:
    """Let cuBLAS make its workspaces outside of a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x @ x
    torch.cuda.current_stream().wait_stream(side)


def segments_of(pool: Any) -> list[dict[str, Any]]:
    """Return the segments that the snapshot shows in a graph's pool."""
    return [
        segment
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment["segment_pool_id"]) == tuple(pool)
    ]


def test_a_replay_launches_and_allocates_nothing() -> None:
    x = torch.ones(512, 512, device="cuda")
    warm_up(x)
    graph = torch.cuda.CUDAGraph()
    control.reset_calls()
    with torch.cuda.graph(graph):
        y = (x @ x).relu() + x
    called = control.calls()
    assert called["cudaStreamBeginCapture"] == called["cudaStreamEndCapture"] == 1
    allocated = torch.cuda.memory_allocated()
    control.reset_calls()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    called = control.calls()
    assert called["cudaGraphLaunch"] == 3
    assert called["cudaLaunchKernel"] == 0
    assert memory_calls(called) == {}
    assert torch.cuda.memory_allocated() == allocated
    assert y.shape == (512, 512)


def test_a_graph_owns_a_pool_until_it_is_gone() -> None:
    x = torch.ones(1024, 1024, device="cuda")
    torch.cuda.empty_cache()  # as capturing does
    reserved = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        z = y * 2
    (segment,) = segments_of(graph.pool())
    pool_bytes = segment["total_size"]
    assert pool_bytes == 20 * MIB
    assert segment["allocated_size"] == 8 * MIB
    # The random generator may keep its state for graphs, a small segment, outside of the pool.
    captured = torch.cuda.memory_reserved()
    assert captured - reserved - pool_bytes in {0, 2 * MIB}
    total = sums(torch.cuda.memory_snapshot(), 0)
    assert total == statistics(total, 0)

    addresses = {y.data_ptr(), z.data_ptr()}
    del y, z
    torch.cuda.empty_cache()
    # Its memory is for its replays; nobody else gets it.
    assert torch.cuda.memory_reserved() == captured
    assert torch.empty(1024, 1024, device="cuda").data_ptr() not in addresses

    graph_pool = graph.pool()
    graph.reset()
    torch.cuda.empty_cache()
    assert segments_of(graph_pool) == []
    del x, graph
    assert reserved_bytes() == [0, 0]


def test_two_graphs_share_a_pool() -> None:
    x = torch.ones(1024, 1024, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x + 1
        del y
    reserved = torch.cuda.memory_reserved()
    with torch.cuda.graph(second, pool=first.pool()):
        z = x * 2
    assert second.pool() == first.pool()
    assert torch.cuda.memory_reserved() == reserved
    assert z.data_ptr() == segments_of(first.pool())[0]["address"]


def test_memory_of_a_capture_is_used_again_within_it() -> None:
    x = torch.ones(4 * MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            y = x + 1
            address = y.data_ptr()
            del y
            y = x + 2
            assert y.data_ptr() == address
            del y
    assert sum(segment["total_size"] for segment in segments_of(graph.pool())) == 16 * MIB


def test_a_whole_step_is_captured() -> None:
    trainer = Trainer(capturable=True, foreach=True)
    tokens = torch.zeros(4, CONFIG.context + 1, dtype=torch.long, device="cuda")

    def step() -> torch.Tensor:
        trainer.optimizer.zero_grad(set_to_none=True)
        logits = trainer.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        trainer.optimizer.step()
        detached: torch.Tensor = loss.detach()
        return detached

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
        step()
    torch.cuda.current_stream().wait_stream(side)
    trainer.optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    allocated = torch.cuda.memory_allocated()
    for _ in range(3):
        tokens.zero_()
        graph.replay()
        loss.item()
    assert torch.cuda.memory_allocated() == allocated


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
def test_graphed_callables_train() -> None:
    layer: Any = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)).cuda()
    example = torch.randn(16, 64, device="cuda", requires_grad=True)
    graphed: Any = torch.cuda.make_graphed_callables(layer, (example,))
    control.reset_calls()
    for _ in range(2):
        graphed(torch.randn(16, 64, device="cuda", requires_grad=True)).sum().backward()
    assert control.calls()["cudaGraphLaunch"] == 4
    assert layer[0].weight.grad.shape == (64, 64)


def test_capture_is_known_while_it_lasts() -> None:
    x = torch.ones(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        x.add_(1)
    assert not torch.cuda.is_current_stream_capturing()


def test_a_capture_spans_the_streams_that_join_it() -> None:
    x = torch.ones(MIB, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            y = x + 1
        main.wait_stream(side)
        z = y + x
    graph.replay()
    torch.cuda.synchronize()
    assert {segment["stream"] for segment in segments_of(graph.pool())} == {
        main.cuda_stream,
        side.cuda_stream,
    }
    assert z.shape == x.shape
