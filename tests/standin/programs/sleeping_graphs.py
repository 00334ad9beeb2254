"""Graphs, graph trees and pools whose memory sleeps, with real bytes; prints what was seen as JSON.

Kernels compute nothing on the stand-in, so graphs copy: what a replay wrote is found again.
"""

# Graph trees have private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import json
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.failures import failure

import gmlake

with warnings.catch_warnings():  # of what PyTorch itself has deprecated
    warnings.simplefilter("ignore")
    from torch._inductor.cudagraph_trees import cudagraphify_impl, get_container

if TYPE_CHECKING:
    from collections.abc import Sequence

Result = dict[str, Any]
COUNT = 700_032  # numbers in a tensor: whole blocks, but no whole pages


def numbers(first: int, count: int = COUNT) -> torch.Tensor:
    """Return a tensor on the host with no two numbers alike."""
    return torch.arange(first, first + count, dtype=torch.float32)


def has(tensor: torch.Tensor, first: int) -> bool:
    return torch.equal(tensor.cpu(), numbers(first, tensor.numel()))


def held(name: str) -> int:
    """Return what a region holds, in bytes."""
    return sum(each.reserved_bytes for each in gmlake.regions() if each.name == name)


def live(name: str) -> int:
    return sum(each.live_bytes for each in gmlake.regions() if each.name == name)


def sleep_and_wake(*names: str) -> None:
    """Let regions sleep while others use the memory."""
    gmlake.sleep(*names)
    others = numbers(10_000_000, 8_000_000).cuda()
    del others
    torch.cuda.empty_cache()
    gmlake.wake(*names)


def collect() -> None:
    torch._dynamo.reset()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def in_tree(work: Any, inputs: list[Any], results: int) -> Any:
    """Return a function of so many results that runs as graphs of the device's tree.

    Its input stays where it is: kernels copy others, and compute nothing.
    """
    return cudagraphify_impl(
        work,
        inputs,
        (0,),
        device_index=0,
        is_inference=True,
        is_backward=False,
        stack_traces=(None,) * results,
    )


def copies(inputs: list[Any]) -> Sequence[torch.Tensor]:
    """Return two copies, made through a temporary."""
    x = inputs[0]
    inputs.clear()
    between = x.clone()
    return between.clone(), between.clone()


def copy(inputs: list[Any]) -> Sequence[torch.Tensor]:
    x = inputs[0]
    inputs.clear()
    return [x.clone().clone()]


def step(run: Any, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
    """Call it in a step of its own: results of earlier steps need not live on."""
    torch.compiler.cudagraph_mark_step_begin()
    results: Sequence[torch.Tensor] = run(list(inputs))
    return results


def tree() -> Result:
    """Sleep while a tree holds results of a replay, which PyTorch's allocator is not told of."""
    seen: Result = {}
    region = gmlake.region("tree", backup="cpu", graphs=True)
    x = numbers(1).cuda()
    with region:
        run = in_tree(copies, [x], 2)
        for _ in range(2):  # warmed up, and recorded
            step(run, x)
        a, b = step(run, x)
    places = a.data_ptr(), b.data_ptr()
    seen["in_region"] = held("tree") >= 3 * COUNT * 4
    seen["replayed"] = has(a, 1) and has(b, 1)
    b = b[1000:]
    sleep_and_wake("tree")
    seen["results_survive"] = has(a, 1) and has(b, 1001)
    del a, b
    x.copy_(numbers(7))
    with region:
        a, b = step(run, x)
    seen["same_addresses"] = (a.data_ptr(), b.data_ptr()) == places
    seen["replays_after_waking"] = has(a, 7) and has(b, 7)

    y = numbers(11, COUNT + 5).cuda()
    outside = in_tree(copy, [y], 1)
    before = held("tree")
    gmlake.sleep("tree")
    for _ in range(3):  # the results of the first live on: recorded behind them
        (c,) = outside([y])
    seen["outside_while_asleep"] = has(c, 11)
    gmlake.wake("tree")
    seen["outside_is_outside"] = held("tree") == before
    seen["all_survive"] = has(a, 7) and has(b, 7) and has(c, 11)

    z = numbers(13, COUNT - 7).cuda()
    with region:
        again = in_tree(copies, [z], 2)
        for _ in range(3):
            d, e = again([z])
    seen["recorded_again"] = held("tree") > before
    sleep_and_wake("tree")
    seen["more_survive"] = has(a, 7) and has(c, 11) and has(d, 13) and has(e, 13)
    x.copy_(numbers(17))
    del a, b, c, d, e
    a, b = step(run, x)  # outside of its region
    seen["called_outside"] = has(a, 17) and has(b, 17) and (a.data_ptr(), b.data_ptr()) == places
    del a, b, run, outside, again
    collect()
    seen["tree_ended"] = get_container(0).tree_manager is None
    seen["given_back"] = held("tree")
    return seen


def used(pool: torch.cuda.MemPool, first: int, count: int = COUNT) -> torch.Tensor:
    """Return numbers in the memory of a pool."""
    with torch.cuda.use_mem_pool(pool):
        return numbers(first, count).cuda()


def segments_of(pool: torch.cuda.MemPool) -> int:
    return sum(int(segment["total_size"]) for segment in pool.snapshot())


def pools() -> Result:
    """A MemPool in two regions and outside: each request is served where it is made."""
    seen: Result = {}
    collect()
    one, other = (gmlake.region(name, backup="cpu") for name in ("one", "other"))
    with one, other:
        pass
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with one:
        a = used(pool, 1)
        beside = numbers(2).cuda()
    seen["in_region"] = live("one") == 2 * a.nbytes
    b = used(pool, 3)
    with other:
        c = used(pool, 4)
        made = torch.cuda.MemPool()
    seen["where_it_is_made"] = (live("one"), live("other")) == (2 * a.nbytes, a.nbytes)
    seen["uses"] = pool.use_count()
    seen["counted"] = torch.cuda.memory_allocated() - before[0] == 4 * a.nbytes
    seen["shown"] = segments_of(pool) >= 3 * a.nbytes
    places = [each.data_ptr() for each in (a, b, c)]
    moved = gmlake.sleep("one", "other").moved_bytes
    seen["released"] = moved >= 3 * a.nbytes
    seen["asleep"] = failure(partial(in_region, one, pool))
    d = used(pool, 5)
    gmlake.wake()
    seen["contents"] = all(map(has, (a, beside, b, c, d), (1, 2, 3, 4, 5)))
    seen["addresses"] = [each.data_ptr() for each in (a, b, c)] == places
    with one:
        e = used(made, 6)
    del a, beside
    collect()
    seen["trimmed"] = live("one") == e.nbytes
    gmlake.sleep("one", "other")
    del c, pool
    gmlake.wake()
    seen["after_its_end"] = has(b, 3) and has(d, 5) and has(e, 6)
    del b, d, e, made
    collect()
    seen["given_back"] = (held("one"), held("other"))
    seen["as_before"] = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before
    return seen


def in_region(region: gmlake.region, pool: torch.cuda.MemPool) -> torch.Tensor:
    with region:
        return used(pool, 9)


class Captured:
    """A graph that copies `source` to a static result by way of a temporary."""

    def __init__(self, source: torch.Tensor, pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        self.source = source
        with torch.cuda.graph(self.graph, pool=pool):
            between = source.clone()
            self.result = between.clone()
            del between

    def __call__(self, first: int) -> bool:
        """Replay with other numbers; whether they arrive."""
        self.source.copy_(numbers(first, self.source.numel()))
        self.graph.replay()
        torch.cuda.synchronize()
        return has(self.result, first)


def graph_and_pool() -> Result:
    """A graph in a MemPool is captured where graphs are taken; the rest of the pool sleeps."""
    seen: Result = {}
    source = numbers(1).cuda()
    pool = torch.cuda.MemPool()
    plain = gmlake.region("plain", backup="cpu")
    with plain:
        before = used(pool, 2)
        captured = Captured(source, pool.id)
        after = used(pool, 3)  # where the graph may write
    seen["only_the_rest_sleeps"] = live("plain") == before.nbytes
    gmlake.sleep("plain")
    seen["replayed_meanwhile"] = captured(5)
    gmlake.wake("plain")
    seen["contents"] = has(before, 2) and has(after, 3)
    with gmlake.region("takes", backup="cpu", graphs=True):
        second = Captured(source, pool.id)
    kept = held("takes")
    del captured, before, after
    collect()
    seen["holds_the_other"] = held("takes") == kept > 0 and second(6)
    sleep_and_wake("takes")
    seen["survives"] = has(second.result, 6) and second(7)
    del second, pool
    collect()
    seen["given_back"] = (held("plain"), held("takes"))
    return seen


def put_back() -> Result:
    """A pool goes back to a state from before it had memory outside of the region, which sleeps."""
    seen: Result = {}
    source = numbers(1).cuda()
    handle = torch.cuda.graph_pool_handle()
    with gmlake.region("first", backup="cpu", graphs=True):
        first = Captured(source, handle)
    state = torch._C._cuda_getCheckpointState(0, handle)
    second = Captured(source, handle)
    first(3)
    gmlake.sleep("first")
    stale = [second.result.untyped_storage()._cdata]
    torch._C._cuda_setCheckpointPoolState(0, state, stale, [])
    seen["ended"] = not torch._C._has_Standard_Deleter(stale[0])
    places = {first.result.data_ptr()}
    seen["as_it_was"] = torch._C._cuda_checkPoolLiveAllocations(0, handle, places)
    gmlake.wake("first")
    seen["survives"] = has(first.result, 3) and first(4)
    del first, second, state
    collect()
    seen["given_back"] = held("first")
    return seen


def turns() -> Result:
    """Graphs that take turns sleep with their region: their results stay."""
    seen: Result = {}
    sources = [numbers(1, COUNT * size).cuda() for size in (1, 2, 3)]
    with (
        gmlake.region("turns", backup="cpu", graphs=True),
        gmlake.graphs_take_turns("turns"),
    ):
        captured = [Captured(source) for source in sources]
    for first, each in enumerate(captured):
        each(first)
    results = sum(each.result.nbytes for each in captured)
    largest = captured[-1].result.nbytes
    seen["shared"] = results + largest <= held("turns") < results + 2 * largest
    places = [each.result.data_ptr() for each in captured]
    for _ in range(2):
        sleep_and_wake("turns")
        seen["survive"] = all(has(each.result, first) for first, each in enumerate(captured))
    seen["addresses"] = [each.result.data_ptr() for each in captured] == places
    seen["replayed"] = all(each(20 + first) for first, each in enumerate(captured))
    seen["apart"] = all(has(each.result, 20 + first) for first, each in enumerate(captured))
    gmlake.sleep("turns")
    captured.pop()
    collect()
    gmlake.wake("turns")
    seen["without_the_largest"] = all(each(30 + i) for i, each in enumerate(captured))
    captured.clear()
    del each
    collect()
    seen["given_back"] = held("turns")
    return seen


def ended() -> Result:
    """Graphs destroyed while they sleep, alone and with another in their pool."""
    seen: Result = {}
    source = numbers(1).cuda()
    handle = torch.cuda.graph_pool_handle()
    with gmlake.region("ended", backup="cpu", graphs=True):
        alone = Captured(source)
        pair = [Captured(source, handle) for _ in range(2)]
    with gmlake.region("ended", backup="cpu", graphs=True):
        kept = numbers(40).cuda()
    pair[0](2)
    gmlake.sleep("ended")
    del alone
    pair.pop()
    collect()
    gmlake.wake("ended")
    seen["other_survives"] = has(pair[0].result, 2) and pair[0](3)
    gmlake.sleep("ended")
    result = pair[0].result
    pair.clear()
    collect()
    gmlake.wake("ended")
    seen["result_survives"] = has(result, 3) and has(kept, 40)
    del result, kept
    collect()
    seen["given_back"] = held("ended")
    return seen


def failing() -> Result:
    """A capture that fails in a region keeps nothing from sleeping."""
    seen: Result = {}
    region = gmlake.region("failing", backup="cpu", graphs=True)
    with region:
        kept = numbers(50).cuda()
    source = numbers(1).cuda()
    left: list[torch.Tensor] = []

    def fail(pool: Any) -> None:
        with region, torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool):
            left.append(source.clone())
            torch.cuda.synchronize()

    handle = torch.cuda.graph_pool_handle()
    with region:
        good = Captured(source, handle)
    good(4)
    texts = [failure(partial(fail, pool)) for pool in (None, handle)]
    seen["failed"] = all("during capture" in text for text in texts)
    for _ in range(2):
        sleep_and_wake("failing")
    seen["contents"] = has(kept, 50) and has(good.result, 4) and good(5)
    left.clear()
    del kept, good
    collect()
    seen["given_back"] = held("failing")
    return seen


def parted() -> Result:
    """Graphs of one pool, in a region and outside, end while one is captured that fails."""
    seen: Result = {}
    source = numbers(1).cuda()
    handle = torch.cuda.graph_pool_handle()
    region = gmlake.region("parted", backup="cpu", graphs=True)
    with region:
        kept = Captured(source, handle)
    outside = [Captured(source, handle) for _ in range(2)]

    def fail() -> None:
        with region, torch.cuda.graph(torch.cuda.CUDAGraph(), pool=handle):
            outside.clear()
            torch.cuda.synchronize()

    seen["failed"] = "during capture" in failure(fail)
    before = held("parted")
    collect()
    seen["kept"] = held("parted") == before and kept(2)
    sleep_and_wake("parted")
    seen["survives"] = has(kept.result, 2) and kept(3)
    del kept
    collect()
    seen["given_back"] = held("parted")
    return seen


def unsplit() -> Result:
    """A pool that splits no block splits none in a region either."""
    pool = torch.cuda.MemPool(no_split=True)
    with gmlake.region("unsplit", backup="cpu"):
        large = used(pool, 1, 8_000_000)
        del large
        two = [used(pool, first) for first in (1, 2)]
    seen = {"whole": held("unsplit") >= 32_000_000 + two[0].nbytes}
    sleep_and_wake("unsplit")
    seen["survives"] = has(two[0], 1) and has(two[1], 2)
    del two, pool
    collect()
    return seen | {"given_back": held("unsplit")}


def main() -> int:
    """Print what was seen."""
    warnings.simplefilter("ignore")
    gmlake.enable()
    parts = {
        "tree": tree,
        "pools": pools,
        "graph_and_pool": graph_and_pool,
        "put_back": put_back,
        "turns": turns,
        "ended": ended,
        "failing": failing,
        "parted": parted,
        "unsplit": unsplit,
    }
    wanted = sys.argv[1:] or list(parts)
    print(json.dumps({name: parts[name]() for name in wanted}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
