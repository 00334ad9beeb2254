"""Elastic tensors, with real bytes; prints what was seen as JSON.

Runs on a stand-in of two devices whose memory has bytes. Kernels compute nothing there, but what
was copied is found again.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.failures import failure

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

Result = dict[str, Any]
MIB = 1 << 20


def numbers(rows: int, first: int = 0) -> torch.Tensor:
    """Return rows of 1 KiB on the host with no two numbers alike."""
    return torch.arange(first, first + 256 * rows, dtype=torch.float32).view(rows, 256)


def live() -> int:
    """Return what gmlake's lake of the first device has live."""
    return int(gmlake.snapshot().devices[0].counters["live_bytes"])


def refusals() -> int:
    """Return how many refusals gmlake's lake of the first device has counted."""
    return int(gmlake.snapshot().devices[0].counters["states"]["oom"])


def contents() -> Result:
    """Rows stay while others come and go."""
    cache = gmlake.elastic((40_000, 256), torch.float32)
    address = cache.whole.data_ptr()
    early = cache.rows == 0 and cache.memory_bytes == 0 and tuple(cache.tensor.shape) == (0, 256)
    cache.resize(3000).copy_(numbers(3000))
    grown = cache.resize(9000)
    grown[3000:].copy_(numbers(6000, 5_000_000))
    kept = torch.equal(grown[:3000].cpu(), numbers(3000))
    cache.resize(4000)
    filler = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    cache.resize(5000)[4000:].copy_(numbers(1000, 9_000_000))
    seen = cache.tensor.cpu()
    expected = torch.cat([numbers(3000), numbers(1000, 5_000_000), numbers(1000, 9_000_000)])
    del filler
    return {
        "starts_empty": early,
        "kept": kept,
        "contents": torch.equal(seen, expected),
        "address": cache.tensor.data_ptr() == address == cache.whole.data_ptr(),
        "memory": cache.memory_bytes == 6 * MIB,
        "length": len(cache) == 5000,
        "text": repr(cache)
        == "<gmlake.Elastic: 5000 of 40000 rows of [256], torch.float32, 6.00 MiB on cuda:0>",
    }


def types() -> Result:
    """Types that DLPack has no word for, and another device."""
    half = gmlake.elastic((100, 8, 64), torch.bfloat16, "cuda:1", rows=10)
    half.tensor.copy_(torch.ones(10, 8, 64, dtype=torch.bfloat16))
    eighth = gmlake.elastic((100, 16), torch.float8_e4m3fn, rows=100)
    return {
        "half": half.tensor.dtype == torch.bfloat16 and tuple(half.tensor.shape) == (10, 8, 64),
        "device": half.tensor.device == torch.device("cuda", 1) == half.device,
        "ones": bool((half.tensor.cpu() == 1).all()),
        "eighth": tuple(eighth.tensor.shape) == (100, 16),
    }


def lifetime() -> Result:
    """Memory lives as long as the buffer or a tensor over it does."""
    before = live()
    cache = gmlake.elastic((10_000, 256), torch.float32, rows=10_000)
    held = live() - before
    view = cache.tensor[5:7]
    del cache
    gc.collect()
    still = live() - before
    del view
    gc.collect()
    after = live() - before
    with gmlake.elastic((10_000, 256), torch.float32, rows=10) as short:
        inside = live() - before
    return {
        "held": held == still == 10 * MIB,
        "gone": after == 0 and live() == before,
        "closed": inside == 2 * MIB and short.rows == 0,
    }


def ahead() -> Result:
    """What is reserved ahead of time needs no call."""
    cache = gmlake.elastic((10_000, 256), torch.float32)
    cache.reserve(5000)
    lake = gmlake.snapshot().devices[0]
    calls = dict(lake.counters["driver_calls"])
    for rows in range(0, 5000, 500):
        cache.resize(rows)
    again = dict(gmlake.snapshot().devices[0].counters["driver_calls"])
    return {
        "memory": cache.memory_bytes == 6 * MIB,
        "no_call": {name: again[name] - calls[name] for name in ("map", "set_access", "create")}
        == {"map": 0, "set_access": 0, "create": 0},
        **by_little(),
    }


def by_little() -> Result:
    """What is large and grows by little takes a 32nd part ahead, and keeps no more than that."""
    cache = gmlake.elastic((400_000, 256), torch.float32, rows=200_000)
    begins_exact = cache.memory_bytes == 196 * MIB
    cache.resize(200_704)
    cache.resize(200_705)
    has_more = cache.memory_bytes == 204 * MIB
    cache.resize(202_752)
    cache.resize(202_500)
    has_kept = cache.memory_bytes == 204 * MIB
    cache.resize(200_704)
    return {"little": begins_exact and has_more and has_kept and cache.memory_bytes == 196 * MIB}


def shared() -> Result:
    """What one gives back serves tensors and other buffers at once."""
    one = gmlake.elastic((400_000, 256), torch.float32)
    two = gmlake.elastic((400_000, 256), torch.float32)
    one.resize(300_000)
    reserved = gmlake.snapshot().devices[0].counters["reserved_bytes"]
    one.resize(100_000)
    two.resize(100_000)
    tensor = torch.empty(90 * MIB, dtype=torch.uint8, device="cuda")
    after = gmlake.snapshot().devices[0].counters["reserved_bytes"]
    one.tensor[-1].copy_(numbers(1, 1)[0])
    two.tensor[-1].copy_(numbers(1, 2)[0])
    tensor.zero_()
    return {
        "no_more": after == reserved,
        "apart": torch.equal(one.tensor[-1].cpu(), numbers(1, 1)[0])
        and torch.equal(two.tensor[-1].cpu(), numbers(1, 2)[0]),
    }


def streams() -> Result:
    """Another stream may be current than at first."""
    cache = gmlake.elastic((40_000, 256), torch.float32, rows=20_000)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        cache.tensor.copy_(numbers(20_000))
        cache.resize(100)
        other = torch.empty(18 * MIB, dtype=torch.uint8, device="cuda")
        cache.resize(30_000)[:].copy_(numbers(30_000))
        kept = cache.tensor.cpu()
    del other
    return {"contents": torch.equal(kept, numbers(30_000)), "behind": comes_behind(side)}


def comes_behind(side: torch.cuda.Stream) -> bool:
    """Rows that one stream reserved and another one uses, while the first still writes there."""
    pinned = numbers(20_000).pin_memory()
    one = gmlake.elastic((20_000, 256), torch.float32, rows=20_000)
    two = gmlake.elastic((20_000, 256), torch.float32)
    one.tensor.copy_(pinned.neg().pin_memory(), non_blocking=True)
    one.resize(0)
    two.reserve(20_000)
    with torch.cuda.stream(side):
        two.resize(20_000).copy_(pinned, non_blocking=True)
        side.synchronize()
    torch.cuda.synchronize()
    return torch.equal(two.tensor.cpu(), pinned)


def in_a_graph() -> Result:
    """Rows come and go in what was reserved, while a graph is captured; growing is refused."""
    cache = gmlake.elastic((40_000, 256), torch.float32)
    cache.reserve(20_000)
    source = torch.empty(10_000, 256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cache.resize(20_000)
        refused = failure(lambda: cache.resize(40_000))
        cache.resize(10_000).copy_(source)
    source.copy_(numbers(10_000))
    graph.replay()
    torch.cuda.synchronize()
    kept = torch.equal(cache.tensor.cpu(), numbers(10_000))
    return {"refused": "captured" in refused, "kept": kept}


def too_little() -> Result:
    """The end of memory is PyTorch's exception, and nothing has changed."""
    cache = gmlake.elastic((4_000_000, 256), torch.float32, rows=1000)
    cache.tensor.copy_(numbers(1000))
    free_before = torch.cuda.mem_get_info()[0]
    before = refusals()
    refused = failure(lambda: cache.resize(4_000_000))
    return {
        "refused": refused,
        "counted": refusals() == before + 1,
        "gives_back": torch.cuda.mem_get_info()[0] >= free_before,
        "same": cache.rows == 1000 and torch.equal(cache.tensor.cpu(), numbers(1000)),
    }


def in_a_region() -> Result:
    """A buffer of a region sleeps with it."""
    with gmlake.region("cache", backup="cpu"):
        cache = gmlake.elastic((40_000, 256), torch.float32, rows=20_000)
    cache.tensor.copy_(numbers(20_000))
    slept = gmlake.sleep("cache")
    asleep = failure(lambda: cache.resize(30_000))
    gmlake.wake("cache")
    kept = torch.equal(cache.tensor.cpu(), numbers(20_000))
    cache.resize(30_000)[20_000:].copy_(numbers(10_000))
    return {
        "moved": slept.moved_bytes == 20 * MIB,
        "asleep": "asleep" in asleep,
        "kept": kept,
        "grows": torch.equal(cache.tensor[20_000:].cpu(), numbers(10_000)),
    }


def errors() -> Result:
    """What cannot be is said in a line."""
    cache = gmlake.elastic((10, 256), torch.float32)
    closed = gmlake.elastic((10, 256), torch.float32)
    closed.close()
    return {
        "rows": failure(lambda: cache.resize(11)),
        "host": failure(lambda: gmlake.elastic((10,), device="cpu")),
        "empty": failure(lambda: gmlake.elastic((10, 0))),
        "closed": failure(lambda: closed.resize(1)),
        "closed_tensor": failure(lambda: closed.tensor),
    }


def main() -> int:
    """Run all parts."""
    gmlake.enable()
    parts: list[Callable[[], Result]] = [
        contents, types, lifetime, ahead, shared,
        streams, in_a_graph, too_little, in_a_region, errors,
    ]  # fmt: skip
    results: Result = {part.__name__: part() for part in parts}
    gc.collect()
    torch.cuda.empty_cache()
    results["left"] = live()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
