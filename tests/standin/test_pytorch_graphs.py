"""What PyTorch's own tests ask of graphs' memory, in our words; see test_pytorch_memory.py."""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
C: Any = torch._C
# A setting that is left out begins anew, all but these.
USUAL = "expandable_segments:False,graph_capture_record_stream_reuse:False"
SHARING = ("apart", "by the first graph", "by a handle")


@pytest.fixture(autouse=True)
def _begins_empty() -> Iterator[None]:
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    yield
    C._accelerator_setAllocatorSettings(USUAL)


def stats_of(pool: str) -> list[int]:
    """Return what is active, in blocks and bytes, and what is reserved."""
    stats = torch.cuda.memory_stats()
    active = [stats[f"{name}.{pool}.current"] for name in ("active", "active_bytes")]
    return [*active, torch.cuda.memory_reserved()]


def difference(after: list[int], before: list[int]) -> list[int]:
    return [new - old for new, old in zip(after, before, strict=True)]


def segments_of(pool: Any) -> list[dict[str, Any]]:
    """Return the segments that the snapshot shows in a graph's pool."""
    return [
        segment
        for segment in torch.cuda.memory._snapshot()["segments"]
        if tuple(segment["segment_pool_id"]) == tuple(pool)
    ]


def advance_all(stream: torch.cuda.Stream) -> None:
    """Let happen what a stream has pending."""
    control.advance(stream.cuda_stream, control.pending(stream.cuda_stream))


SIZES = [
    (512, "small_pool", 1, 2),
    (MIB, "small_pool", 2, 2),
    (MIB + 512, "large_pool", 1, 20),
    (10 * MIB - 512, "large_pool", 2, 20),
    (10 * MIB + 512, "large_pool", 3, 12),
]


@pytest.mark.parametrize(("size_bytes", "pool", "segments", "mib"), SIZES)
def test_a_graph_reserves_what_its_capture_needed(
    size_bytes: int, pool: str, segments: int, mib: int
) -> None:
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        a = torch.ones(size_bytes // 4, device="cuda")
        # The random generator may keep numbers for graphs, outside of their pools.
        other = torch.cuda.CUDAGraph()
        other.capture_begin()
        a.clone()
        other.capture_end()
        before = stats_of(pool)
        graph.capture_begin()
        b = a.clone()
        for _ in range(5):
            b = b.clone() + 1
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    expected = [1, size_bytes, segments * mib * MIB]
    assert difference(stats_of(pool), before) == expected
    graph.replay()
    torch.cuda.empty_cache()
    assert difference(stats_of(pool), before) == expected
    graph.replay()

    # What outlives its graph stays where it is, and only what holds it.
    address = b.data_ptr()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    assert difference(stats_of(pool), before) == [1, size_bytes, mib * MIB]
    assert torch.empty(size_bytes // 4, device="cuda").data_ptr() != address
    assert b.data_ptr() == address
    torch.cuda.synchronize()
    del other


def capture_two(sharing: str) -> tuple[list[torch.cuda.CUDAGraph], torch.Tensor]:
    """Capture two graphs one after the other; the second goes on with the first one's result."""

    def work(x: torch.Tensor) -> torch.Tensor:
        return (x.clone() + 1) + (x.clone() + 1)

    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    handle = (torch.cuda.graph_pool_handle(),) if sharing == SHARING[2] else ()
    x = torch.ones(1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first.capture_begin(*handle)
        for _ in range(5):
            x = work(x)
        first.capture_end()
        second.capture_begin(*((first.pool(),) if sharing == SHARING[1] else handle))
        for _ in range(5):
            x = work(x)
        second.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return [first, second], x


def test_graphs_that_share_a_pool_reserve_less() -> None:
    reserved = {}
    gc.collect()  # a test that failed holds its memory until then
    torch.cuda.empty_cache()
    for sharing in SHARING:
        before = torch.cuda.memory_reserved()
        graphs, x = capture_two(sharing)
        for graph in graphs:
            graph.replay()
        reserved[sharing] = torch.cuda.memory_reserved() - before
        torch.cuda.synchronize()
        del graphs, graph, x
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == before
    assert reserved[SHARING[0]] - reserved[SHARING[1]] == 2 * MIB
    assert reserved[SHARING[1]] == reserved[SHARING[2]]


@pytest.mark.parametrize("sharing", SHARING)
def test_what_a_graph_freed_serves_the_next_of_its_pool_only(sharing: str) -> None:
    graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
    handle = (torch.cuda.graph_pool_handle(),) if sharing == SHARING[2] else ()
    a = torch.ones(1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        graphs[0].capture_begin(*handle)
        b = a.clone()
        c = b + 1
        d = b + 2
        graphs[0].capture_end()
        shared = (graphs[0].pool(),) if sharing == SHARING[1] else handle
        graphs[1].capture_begin(*shared)
        e = c + 3
        freed = c.data_ptr()
        del c
        graphs[1].capture_end()
        graphs[2].capture_begin(*shared)
        f = d + 4
        graphs[2].capture_end()
    assert (f.data_ptr() == freed) == (sharing != SHARING[0])
    assert len({part.data_ptr() for part in (b, d, e, f)}) == 4
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()


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


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_another_thread_may_allocate_during_a_capture(mode: str) -> None:
    graph = torch.cuda.CUDAGraph()
    found: list[int] = []

    def allocate() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for size in (1024, 50 * MIB):
                address = torch.cuda.caching_allocator_alloc(size)
                found.append(address)
                torch.cuda.caching_allocator_delete(address)

    x = torch.zeros(2000, device="cuda")
    with torch.cuda.graph(graph, capture_error_mode=mode):
        y = x + x + x
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    assert len(found) == 2
    begin = y.data_ptr() // (2 * MIB)
    assert all(address // (2 * MIB) != begin for address in found)
    graph.replay()
    torch.cuda.synchronize()


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


def test_memory_of_all_streams_of_a_capture_is_in_its_pool() -> None:
    x = torch.ones(10 * MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    first.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(first):
        graph.capture_begin()
        y = x + x
    with torch.cuda.stream(second):
        second.wait_stream(first)
        z = y + x
    first.wait_stream(second)
    with torch.cuda.stream(first):
        graph.capture_end()
    found = segments_of(graph.pool())
    assert {segment["address"] for segment in found} == {y.data_ptr(), z.data_ptr()}


@pytest.mark.parametrize("count", [1, 3])
def test_memory_lent_within_a_capture_is_used_again_after_the_join(count: int) -> None:
    C._accelerator_setAllocatorSettings("graph_capture_record_stream_reuse:True")
    main, *others = (torch.cuda.Stream() for _ in range(1 + count))
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(main):
        graph.capture_begin()
        sink = torch.empty(8, device="cuda")
        lent = torch.empty(8, device="cuda")
        address = lent.data_ptr()
        results = []
        for other in others:
            other.wait_stream(main)
            with torch.cuda.stream(other):
                results.append(torch.add(lent, 2))
                lent.record_stream(other)
        del lent
        for other in others:
            results.append(torch.empty(8, device="cuda"))
            main.wait_stream(other)
            sink.fill_(1)
        late = torch.empty(8, device="cuda")
        graph.capture_end()
    torch.cuda.synchronize()
    assert address not in {part.data_ptr() for part in results}
    assert late.data_ptr() == address


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


def test_one_thread_allocates_in_the_pool_of_a_graph() -> None:
    pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        torch.ones(4, device="cuda")
    assert len(segments_of(pool)) == 1

    def three() -> None:
        parts = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
        assert len(parts) == 3

    def inside() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            C._cuda_beginAllocateCurrentThreadToPool(0, pool)
            for _ in range(10):
                three()
            C._cuda_endAllocateToPool(0, pool)
            C._cuda_releasePool(0, pool)
        three()

    threads = [threading.Thread(target=inside), threading.Thread(target=three)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(segments_of(pool)) == 4
    del graph
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    assert segments_of(pool) == []
