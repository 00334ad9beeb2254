"""Lets gmlake begin and end at each moment of what programs do; prints what each saw as JSON.

Each moment is a function that calls `step` three times. What it returns is what PyTorch alone would
say too. An argument names the only moment, in which gmlake begins for the first time at step 1.
"""

# Much of this has private names only.
# mypy: allow-untyped-calls
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import io
import json
import os
import sys
import threading
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.accounting import statistics, sums
from tests.standin.asking import (
    MIB,
    C,
    advance_all,
    at_most,
    block,
    events,
    holds,
    segments_of,
    snapshot,
    stat,
)
from tests.standin.refusal import refused

import gmlake
from gmlake import Lake, _core
from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], None]

INTERVALS = ((0, 1), (1, 2), (2, 3), (3, 4), (1, 3), (0, 4))


def lake_stats(name: str) -> int:
    """Return one statistic of the first device's lake."""
    lake = _core.torch_lake(Lake, 0)
    return int(lake.stats()[name]) if lake else 0  # type: ignore[literal-required]


# ---- moments


def pool(step: Step) -> Any:
    """Use a pool."""
    its = torch.cuda.MemPool()
    held = [block(20)]
    with torch.cuda.use_mem_pool(its):
        held.append(block(20))
        step()
        held.append(block(20))
        step()
        held.append(block(20))
    held.append(block(20))
    step()
    with torch.cuda.use_mem_pool(its):
        held.append(block(20))
    segments = segments_of(its.id)
    return [any(holds(part, tensor) for part in segments) for tensor in held]


def history(step: Step) -> Any:
    """Record a history."""
    torch.cuda.memory._record_memory_history(stacks="python")
    held = []
    for mib in (3, 5, 7):
        held.append(block(mib))
        step()
        held.pop()
    found = events()
    sizes = [
        [one["size"] // MIB for one in found if one["action"] == wanted]
        for wanted in ("alloc", "free_completed")
    ]
    frames = [any(f["name"] == "history" for f in one.get("frames", [])) for one in found]
    times = [one["time_us"] for one in found]
    torch.cuda.memory._record_memory_history(None)
    return [sizes, all(frames), times == sorted(times), min(times) > 0]


def profiler(step: Step) -> Any:
    """Profile memory."""
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        for mib in (3, 5, 7):
            held = block(mib)
            step()
            del held
    sizes = [one.device_memory_usage for one in profile.events() or []]
    return [sum(sizes), sorted(size // MIB for size in sizes if size)]


def stream(step: Step) -> Any:
    """Lend tensors to another stream."""
    side = torch.cuda.Stream()
    overlaps = []
    with control.paced("manual"):
        for _ in range(3):
            lent = block(8)
            begin = lent.data_ptr()
            with torch.cuda.stream(side):
                lent.add_(1)
            lent.record_stream(side)
            step()
            del lent
            other = block(8)
            overlaps.append(abs(other.data_ptr() - begin) < 8 * MIB)
            del other
        advance_all(side)
    torch.cuda.synchronize()
    return overlaps


def thread(step: Step) -> Any:
    """Allocate and free in a thread that began before."""
    shared: list[torch.Tensor] = []
    turns = [threading.Semaphore(0), threading.Semaphore(0)]

    def work() -> None:
        for mib in (3, 5, 7, 9):
            turns[0].acquire()
            shared.append(block(mib))
            if len(shared) > 2:
                shared.pop(0)
            turns[1].release()

    worker = threading.Thread(target=work)
    worker.start()
    sizes = []
    for turn in range(4):
        turns[0].release()
        turns[1].acquire()
        sizes.append([part.nbytes // MIB for part in shared])
        if turn < 3:
            step()
    worker.join()
    return sizes


def backward(step: Step) -> Any:
    """Begin and end in hooks of a backward, which run in its thread."""
    x = torch.zeros(MIB, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    y = x
    for _ in range(3):
        y = y * 2
        y.register_hook(lambda _: step())
    y.sum().backward()
    assert x.grad is not None
    del y
    return [x.grad.shape[0], torch.cuda.memory_allocated() - before]


def replay(step: Step) -> Any:
    """Replay a graph, and capture another into its pool."""
    graphs = [torch.cuda.CUDAGraph()]
    x = torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graphs[0]):
        results = [x + 1]
    overlaps = []
    for _ in range(3):
        for graph in graphs:
            graph.replay()
        step()
        others = [block(4) for _ in range(3)]
        overlaps += [
            abs(other.data_ptr() - result.data_ptr()) < 4 * MIB
            for other in others
            for result in results
        ]
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=graphs[0].pool()):
            results.append(x + 1)
        del others, graph
    torch.cuda.synchronize()
    segments = segments_of(graphs[0].pool())
    inside = [any(holds(part, one) for part in segments) for one in results]
    return [any(overlaps), len(overlaps), inside]


def capture(step: Step) -> Any:
    """Begin and end within a capture."""
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(MIB, device="cuda")
    results = []
    handle: Any = torch.cuda.graph_pool_handle()
    with torch.cuda.graph(graph, pool=handle):
        for _ in range(3):
            results.append(x + 1)
            step()
        results.append(x + 1)
    graph.replay()
    torch.cuda.synchronize()
    segments = segments_of(handle)
    return [any(holds(part, one) for part in segments) for one in results]


def fork(step: Step) -> Any:
    """Fork a child that ends at once, with what it inherited."""
    held = []
    codes = []
    for _ in range(3):
        held.append(block(3))
        step()
        child = os.fork()
        if child == 0:
            held.clear()
            os._exit(0)
        codes.append(os.waitpid(child, 0)[1])
    return [codes, len(held)]


def pickling(step: Step) -> Any:
    """Keep tensors in a file and read them again."""
    sizes = []
    held = block(3)
    for _ in range(3):
        file = io.BytesIO()
        torch.save(held, file)
        step()
        file.seek(0)
        before = torch.cuda.memory_allocated()
        again = torch.load(file)
        sizes.append([again.device.type, torch.cuda.memory_allocated() - before])
        held = again
        del again
    return sizes


def resizing(step: Step) -> Any:
    """Resize a storage."""
    held = block(3)
    before = torch.cuda.memory_allocated()
    sizes = []
    for mib in (10, 0, 30):
        held.untyped_storage().resize_(mib * MIB)
        step()
        sizes.append((torch.cuda.memory_allocated() - before) // MIB)
    return sizes


def raw(step: Step) -> Any:
    """Allocate without tensors."""
    before = torch.cuda.memory_allocated()
    addresses = [torch.cuda.caching_allocator_alloc(MIB)]
    for _ in range(3):
        step()
        addresses.append(torch.cuda.caching_allocator_alloc(MIB))
        torch.cuda.caching_allocator_delete(addresses.pop(0))
    live = torch.cuda.memory_allocated() - before
    torch.cuda.caching_allocator_delete(addresses.pop())
    return [live, torch.cuda.memory_allocated() - before]


def fraction(step: Step) -> Any:
    """Set a limit and fill it."""
    refusals = []
    with at_most(100):
        held = [block(40), block(40)]
        for _ in range(3):
            step()
            refusals.append(refused(block, 40).partition(":")[0])
            held.pop(0)
            held.append(block(40))
    return refusals


@cache
def told() -> list[int]:
    """Return the sizes that were refused so far: an observer cannot be taken away."""
    sizes: list[int] = []
    C._cuda_attach_out_of_memory_observer(lambda *figures: sizes.append(figures[1] // MIB))
    return sizes


def end_of_memory(step: Step) -> Any:
    """Run out, and go on."""
    told().clear()
    held = []
    ooms = stat("num_ooms")
    names = []
    for power in (22, 23, 24):
        step()
        names.append(refused(block, 1 << power).partition(":")[0])
        held.append(block(3))
    return [list(told()), names, stat("num_ooms") - ooms]


def sums_agree(step: Step) -> Any:
    """Compare snapshots with statistics."""
    held = []
    agree = []
    for mib in (3, 50, 0.2):
        held += [block(mib) for _ in range(3)]
        step()
        held.pop(0)
        total = sums(snapshot()["segments"], 0)
        total = {name: total[name] for name in total if not name.startswith("inactive")}
        agree.append(total == statistics(total, 0))
    return agree


MOMENTS = (
    *(pool, history, profiler, stream, thread, backward, replay, capture, fork, pickling),
    *(resizing, raw, fraction, end_of_memory, sums_agree),
)

# ---- running them


def run(moment: Callable[[Step], Any], begin: int, end: int) -> dict[str, Any]:
    """Run a moment with gmlake from one step to another; begin 9: without it."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
    allocations = lake_stats("allocations")
    region = gmlake.enabled()
    at = -1

    def step() -> None:
        nonlocal at
        at += 1
        if at == begin:
            region.__enter__()
        if at == end:
            region.__exit__(None, None, None)

    step()
    result = moment(step)
    assert at == 3, moment
    step()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return {
        "result": result,
        "left": torch.cuda.memory_allocated() - before[0],
        "reserved": torch.cuda.memory_reserved() <= before[1],
        "live": lake_stats("live_bytes"),
        "served": lake_stats("allocations") - allocations,
    }


def main(only: str = "") -> None:
    """Run all at each moment, after PyTorch alone did."""
    warnings.simplefilter("ignore")
    torch.zeros(8, device="cuda")
    gc.freeze()  # what the imports left is collected after no moment
    if only:
        json.dump({only: {"first": run(globals()[only], 1, 9)}}, sys.stdout)
        return
    seen = {moment.__name__: {"never": run(moment, 9, 9)} for moment in MOMENTS}
    for moment in MOMENTS:
        for begin, end in INTERVALS:
            seen[moment.__name__][f"{begin} to {end}"] = run(moment, begin, end)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
