"""Programs that gmlake serves in native mode; each prints what it saw as JSON.

The argument names one of the functions below.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.failures import failure
from tests.standin.programs import compiled
from tests.standin.refusal import refused

import gmlake
from gmlake import Lake, _core
from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20

captured: list[torch.cuda.CUDAGraph] = []  # whoever captures in a pool again needs the first


def block(mib: int = 8) -> torch.Tensor:
    """Return a tensor of so many MiB."""
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def served_mib() -> float:
    """Return how much of what lives gmlake serves."""
    lake = _core.torch_lake(Lake, 0)
    return lake.stats()["live_bytes"] / MIB if lake else 0


def losses(model: torch.nn.Module, *, steps: int = 4) -> list[float]:
    """Train; return the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for step in range(steps):
        loss = model(torch.full((16, 64), float(step + 1), device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def idle() -> dict[str, Any]:
    """Let each need what the other holds idle, on a device of 512 MiB."""
    seen: dict[str, Any] = {}
    for _ in range(8):
        block(40)  # PyTorch keeps it
    held = [block(40) for _ in range(8)]
    del held
    with gmlake.enabled():
        seen["of_pytorch"] = block(360).nbytes // MIB
        seen["refused"] = refused(block, 600)
    seen["of_gmlake"] = block(360).nbytes // MIB
    return seen


def counted() -> list[int]:
    """Return how many refusals gmlake has counted, and how many PyTorch."""
    lake = _core.torch_lake(Lake, 0)
    ours = lake.stats()["states"]["oom"] if lake else 0
    return [ours, torch.cuda.memory_stats()["num_ooms"]]


def fraction() -> dict[str, Any]:
    """Set a limit before, on a device of 1 GiB, and fill it from both sides."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    held = [block(100)]
    with gmlake.enabled():
        held += [block(100) for _ in range(4)]
        inside = refused(block, 100)
    outside = refused(block, 100)
    del held
    return {
        "inside": inside.partition(":")[0],
        "outside": outside.partition(":")[0],
        "again": block(480).nbytes // MIB,
        "fraction": torch.cuda.get_per_process_memory_fraction(),
    }


def begun() -> dict[str, Any]:
    """Begin while threads capture or are in a pool, before gmlake has ever begun and after."""
    seen: dict[str, Any] = {"early": []}
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    for each in (capturing, pooling):
        with each(pool) as served:
            seen["early"].append(failure(gmlake.enable).partition(" while")[0])
            seen["early"].append(served())
    with torch.cuda.use_mem_pool(pool):
        seen["early"].append(failure(gmlake.enable).partition(" while")[0])
    with gmlake.enabled():
        seen["later"] = []
    for each in (capturing, pooling):
        with each(pool) as served:  # PyTorch's, and stays so
            seen["later"] += [failure(gmlake.enable), served()]
        with each(other) as served:  # gmlake's, and stays so
            gmlake.disable()
            seen["later"].append(served())
    seen["served"] = served_mib()
    gmlake.enable()
    held = block(16)
    seen["served"] = served_mib() - seen["served"]
    del held
    return seen


@contextmanager
def capturing(pool: torch.cuda.MemPool) -> Iterator[Callable[[], bool]]:
    """Let a thread capture a graph; yield whether its pool serves the thread in the end."""
    graph = torch.cuda.CUDAGraph()
    captured.append(graph)
    handle: Any = pool.id

    def begin() -> None:
        torch.cuda.set_stream(torch.cuda.Stream())
        graph.capture_begin(pool=handle, capture_error_mode="thread_local")

    with elsewhere(pool, begin, graph.capture_end) as served:
        yield served


@contextmanager
def pooling(pool: torch.cuda.MemPool) -> Iterator[Callable[[], bool]]:
    """Let a thread be in a pool; yield whether it serves the thread in the end."""
    used = torch.cuda.use_mem_pool(pool)
    with elsewhere(pool, used.__enter__, lambda: used.__exit__(None, None, None)) as served:
        yield served


@contextmanager
def elsewhere(
    pool: torch.cuda.MemPool, begin: Callable[[], object], end: Callable[[], object]
) -> Iterator[Callable[[], bool]]:
    """Begin and end in another thread; yield who asks there for a block in between."""
    with ThreadPoolExecutor(1) as thread:

        def served() -> bool:
            address = thread.submit(lambda: block().data_ptr()).result()
            ours = [each for each in pool.snapshot() if each["segment_pool_id"] == pool.id]
            return any(0 <= address - each["address"] < each["total_size"] for each in ours)

        thread.submit(begin).result()
        try:
            yield served
        finally:
            thread.submit(end).result()


def apart() -> dict[str, Any]:
    """Leave devices alone that a program does not use, and those that it uses when one is full."""
    gmlake.enable(capacity="900MiB")
    torch.cuda.set_per_process_memory_fraction(0.9, 2)
    with gmlake.region("apart"):
        held = [block()]
    gmlake.sleep("apart")
    gmlake.wake("apart")
    torch.cuda.empty_cache()
    figures = [torch.cuda.memory_stats(3), torch.cuda.memory_snapshot(), gmlake.snapshot()]
    seen: dict[str, Any] = {"figures": len(figures), "used": contexts()}
    with gmlake.enabled("caching"):
        for device in ("cuda:0", "cuda:1"):
            torch.empty(400 * MIB, dtype=torch.uint8, device=device)
    held.append(block(800))
    seen["full"] = [refused(block, 400)[:16], torch.cuda.memory_reserved(1) // MIB, contexts()]
    return seen


def contexts() -> list[int]:
    """Return the devices on which this process has a context."""
    return [n for n in range(4) if vars(torch._C)["_cuda_hasPrimaryContext"](n)]  # noqa: SLF001


def far() -> dict[str, Any]:
    """Lend a tensor to another device's default stream, whose handle is that of this one's."""
    gmlake.enable()
    far = torch.cuda.default_stream(1)
    with control.paced("manual"):
        lent = block()
        address = lent.data_ptr()
        with torch.cuda.stream(far):
            torch.empty(8, device="cuda:1").add_(1)
        lent.record_stream(far)
        del lent
        early = block()
    torch.cuda.synchronize(1)
    return {"early": early.data_ptr() == address, "late": block().data_ptr() == address}


def products() -> dict[str, Any]:
    """Multiply behind the first tensor of two threads; cuBLAS must find a context in each."""
    warnings.simplefilter("error")
    gmlake.enable()

    def multiply() -> int:
        matrix = torch.empty(64, 64, device="cuda")
        return (matrix @ matrix).numel()

    with ThreadPoolExecutor(1) as thread:
        return {"numbers": [multiply(), thread.submit(multiply).result()]}


def threads() -> dict[str, Any]:
    """Switch while threads allocate and free, some of what others allocated."""
    shared: list[torch.Tensor] = []
    errors: list[str] = []
    is_over = threading.Event()

    def churn(seed: int) -> None:
        mine: list[torch.Tensor] = []
        try:
            while not is_over.is_set():
                tensor = torch.full((seed * 1000,), seed, device="cuda")
                mine.append(tensor)
                shared.append(tensor)
                if len(mine) > 8:
                    mine.pop(0)
                    shared.pop(0)
        except Exception as error:  # noqa: BLE001
            errors.append(repr(error))

    workers = [threading.Thread(target=churn, args=(seed,)) for seed in range(1, 5)]
    for worker in workers:
        worker.start()
    for _ in range(200):
        with gmlake.enabled():
            block(1)
    is_over.set()
    for worker in workers:
        worker.join()
    shared.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return {"errors": errors, "live": served_mib(), "allocated": torch.cuda.memory_allocated()}


def graph_trees() -> dict[str, Any]:
    """Compile with CUDA graphs."""
    warnings.simplefilter("ignore")
    with gmlake.enabled():
        seen = compiled.train("reduce-overhead")
        seen["served"] = served_mib() > 0
    return seen


def sharing() -> dict[str, Any]:
    """Share tensors with other processes."""
    ordinary = block()
    with gmlake.enabled():
        stitched = block()
        return {
            "ordinary": refused(ordinary.untyped_storage()._share_cuda_),
            "stitched": refused(stitched.untyped_storage()._share_cuda_),
            "served": served_mib(),
        }


def segments() -> dict[str, Any]:
    """Record memory that comes and goes, and where tensors lie."""
    seen: dict[str, Any] = {}
    with gmlake.enabled():
        early = block(40)
        torch.cuda.memory._record_memory_history(context="all")  # noqa: SLF001
        late = block(80)
        del early
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001
        del late
        torch.cuda.empty_cache()
        after = torch.cuda.memory._snapshot()  # noqa: SLF001
    events = [(event["action"], event["size"] // MIB) for event in snapshot["device_traces"][0]]
    seen["events"] = [event for event in events if event[0] != "snapshot"]
    seen["frames"] = [
        any("native.py" in frame["filename"] for frame in block_["frames"])
        for segment in snapshot["segments"]
        for block_ in segment["blocks"]
        if block_["state"] == "active_allocated"
    ]
    seen["sums"] = [
        sum(segment["total_size"] for segment in found["segments"]) // MIB
        for found in (snapshot, after)
    ]
    seen["unmapped"] = sum(
        event["size"] for event in after["device_traces"][0] if event["action"] == "segment_unmap"
    )
    return seen


def refused_capture() -> dict[str, Any]:
    """Capture a request for more than is left, with 256 MiB."""
    with gmlake.enabled():
        kept, stream, graph = [block(56)], torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="relaxed")
            kept += [block(56).zero_() for _ in range(3)]
            message = refused(block, 56)
            graph.capture_end()
        held = torch.cuda.memory_reserved()
        kept.append(block(20))
        return {"refused": message.split(":")[0], "held": held // MIB, "kept": len(kept)}


def unserved() -> dict[str, Any]:
    """Run where gmlake cannot begin, three times."""
    with gmlake.enabled() as session:
        mode, enabled = session.mode, gmlake.is_enabled()
        with gmlake.enabled("caching"):
            held = torch.ones(1024, device="cuda")
        gmlake.enable()
        return {
            "mode": mode,
            "enabled": enabled,
            "numbers": held.numel(),
            "served": len(session.devices),
        }


if __name__ == "__main__":
    json.dump(globals()[sys.argv[1]](), sys.stdout)
