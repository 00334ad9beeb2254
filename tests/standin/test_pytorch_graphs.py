"""What PyTorch's own tests ask of graphs' memory, in our words; see test_pytorch_memory.py."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))


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
