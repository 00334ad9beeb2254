"""Programs that run out of memory under gmlake, for eight reasons, each in the same process.

Each leaves a file about its refusal. Prints by name what the exception said, the account behind it,
and whether what it says would have been served is.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import gc
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
MOST_TRIES = 2000
MORE = 8 * MIB  # than what is served, and above what that is rounded to


def tensor(mib: float) -> torch.Tensor:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def total() -> int:
    return torch.cuda.mem_get_info()[1] // MIB


found: dict[str, Any] = {}  # about the refusal of one reason


def note(error: torch.OutOfMemoryError) -> None:
    """Note what is told of a refusal, and whether what would have been served is."""
    account = _core.last_refusal()
    less = account["serves_bytes"] // 512 * 512
    found.update(said=str(error), account=account, less=less == 0 or served(less))
    found["more"] = served(less + MORE)


def served(size: int) -> bool:
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    return True


def grow(held: list[torch.Tensor], size: float, more: float = 0) -> None:
    """Take memory until it is refused, each time somewhat more."""
    for number in range(MOST_TRIES):
        try:
            held.append(tensor(size + number * more))
        except torch.OutOfMemoryError as error:
            note(error)
            return


def growing(held: list[torch.Tensor]) -> None:
    """Hold what grows with each step, beside what comes and goes and grows, too."""
    for number in range(MOST_TRIES):
        passing: list[torch.Tensor] = []
        try:
            held += [tensor(0.9 + number % 5), tensor(total() / 48 + 3.7 * number)]
            passing.extend(tensor(total() / 96 + 5.3 * number + part) for part in range(3))
        except torch.OutOfMemoryError as error:
            note(error)
            return


def graph_pool(held: list[torch.Tensor]) -> None:
    """Ask for what the idle memory of a graph would serve."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = tensor(total() / 4)
        held.append(tensor(16))
        del kept
    grow(held, total() / 5)
    held.clear()
    graph.reset()


def mempool(held: list[torch.Tensor]) -> None:
    """Ask for what a pool keeps beside a tensor that lives in it."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        parts = [tensor(total() / 40) for _ in range(12)]
    del parts[1::2]
    held += parts
    grow(held, total() / 9)


def streams(held: list[torch.Tensor]) -> None:
    """Run out during a capture, while what is idle is of another stream."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        idle = [tensor(total() / 12) for _ in range(5)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        del idle
        grow(held, total() / 7)
        held.clear()


def limit(held: list[torch.Tensor]) -> None:
    torch.cuda.set_per_process_memory_fraction(0.6)
    grow(held, total() / 13, 1.5)
    torch.cuda.set_per_process_memory_fraction(1.0)


def neighbour(held: list[torch.Tensor]) -> None:
    """Run out where somebody else has much of the device."""
    taken = ctypes.c_uint64()
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuMemAlloc_v2(ctypes.byref(taken), ctypes.c_size_t(total() // 2 * MIB)) == 0
    grow(held, total() / 11)
    assert driver.cuMemFree_v2(taken) == 0


def asleep(held: list[torch.Tensor]) -> None:
    """Run out beside a region that sleeps and one that is awake and has idle memory."""
    with gmlake.region("w"):
        weights = tensor(total() / 5)
    with gmlake.region("x"):
        others = [tensor(total() / 30) for _ in range(6)]
    gmlake.sleep("w", backup=None)
    del others[::2]
    grow(held, total() / 8)
    held.clear()
    gmlake.wake("w")
    del weights, others


def elastic(held: list[torch.Tensor]) -> None:
    cache = gmlake.elastic((total(), MIB), torch.uint8, rows=total() // 3)
    grow(held, total() / 10)
    cache.close()


REASONS: dict[str, Callable[[list[torch.Tensor]], None]] = {
    reason.__name__: reason
    for reason in (growing, graph_pool, mempool, streams, limit, neighbour, asleep, elastic)
}


@contextmanager
def recorded() -> Iterator[None]:
    torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(None)  # noqa: SLF001


def refused(name: str, path: Path) -> dict[str, Any]:
    """Run out of memory for that reason; return what is told of it."""
    held: list[torch.Tensor] = []
    found.clear()
    with gmlake.enabled(on_oom=str(path)), recorded():
        REASONS[name](held)
    held.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return dict(found)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or list(REASONS)
    print(json.dumps({name: refused(name, folder / f"{name}.pickle") for name in names}))
