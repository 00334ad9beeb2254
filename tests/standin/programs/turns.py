"""Graphs that take turns; prints what was seen as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import gc
import json
import threading
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake import _core
from gmlake.standin import control

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIB = 1 << 20
BATCHES = range(1, 17)


def some(size: int) -> torch.Tensor:
    """Return so many bytes of the device."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def reserved() -> int:
    """Return the MiB that are reserved once all is collected, cuBLAS's workspaces too."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() // MIB


def segments() -> int:
    """Return the MiB of all segments of a snapshot."""
    return sum(int(segment["total_size"]) for segment in torch.cuda.memory_snapshot()) // MIB


class Captured:
    """A graph of a batch size: two temporaries and a result."""

    def __init__(self, batch: int, pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            first = some(batch * 20 * MIB).fill_(0)
            second = some(batch * 30 * MIB).fill_(0)
            self.temporary = second.data_ptr()
            del first
            self.result = some(batch * MIB).fill_(batch)
            del second


def serve() -> dict[str, list[int]]:
    """Return what graphs reserve in each order, what a snapshot shows of it, and what is left."""
    ways: dict[str, tuple[Iterable[int], Any]] = {
        "own": (BATCHES, None),
        "ascending": (BATCHES, torch.cuda.graph_pool_handle()),
        "descending": (reversed(BATCHES), torch.cuda.graph_pool_handle()),
    }
    seen: dict[str, list[int]] = {}
    for way, (batches, pool) in ways.items():
        with gmlake.graphs_take_turns(way):
            captured = [Captured(batch, pool) for batch in batches]
        held = reserved()
        for each in captured:
            each.graph.replay()
        shown = segments()
        del each
        captured.clear()
        seen[way] = [held, shown, reserved()]
    return seen


def names() -> list[int]:
    """Return what two graphs reserve: of one name, of two names, and one of them outside."""
    seen = []
    for first, second in (("a", "a"), ("a", "b"), ("a", "")):
        captured = []
        for name in (first, second):
            with gmlake.graphs_take_turns(name) if name else contextlib.nullcontext():
                captured.append(Captured(4))
        seen.append(reserved())
        captured.clear()
    return [*seen, reserved()]


def callables() -> list[Any]:
    """Return how much a graphed module of two takes for its backward passes, and after its end."""
    before = reserved()
    with gmlake.graphs_take_turns("modules"):
        module = torch.nn.Sequential(
            torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)
        ).cuda()
        x = torch.randn(512, 1024, device="cuda", requires_grad=True)
        graphed: Any = torch.cuda.make_graphed_callables(module, (x,))
    for _ in range(3):
        graphed(x).sum().backward()
    took = reserved() - before
    del graphed, module
    x.grad = None
    del x
    return [took, reserved() - before]


def eager_pool() -> list[int]:
    """Return what graphs reserve in a pool that serves other work: no turns are taken there."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        other = some(MIB)
    with gmlake.graphs_take_turns("pool"):
        captured = [Captured(batch, pool.id) for batch in (1, 2)]
    held = reserved()
    del captured, other, pool
    return [held, reserved()]


def refusals() -> list[Any]:
    """Return the texts of captures that are refused, and what they leave behind."""
    texts = []
    outer, inner = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(outer, capture_error_mode="relaxed"), torch.cuda.stream(side):
        some(MIB).fill_(0)
        try:
            with gmlake.graphs_take_turns("refused"):
                inner.capture_begin(capture_error_mode="relaxed")
        except RuntimeError as error:
            texts.append(str(error).splitlines()[0])
    del outer, inner
    left = [reserved()]
    with gmlake.graphs_take_turns("tight"):
        first = Captured(16)
        before = reserved()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = [some(100 * MIB) for _ in range(8)]
        except torch.OutOfMemoryError as error:
            texts.append(str(error).splitlines()[0])
        del kept, graph
    held = reserved()
    again = Captured(1)
    del first, again
    return [texts, [*left, held - before, reserved()]]


def interrupted() -> list[int]:
    """Return the turns of this thread inside, after an exception, and inside a decorated call."""
    seen = []
    with contextlib.suppress(KeyboardInterrupt), gmlake.graphs_take_turns("inside"):
        seen.append(int(_core.torch_turn() > 0))
        raise KeyboardInterrupt
    seen.append(_core.torch_turn())

    @gmlake.graphs_take_turns("inside")
    def turn() -> int:
        return int(_core.torch_turn() > 0)

    return [*seen, turn(), _core.torch_turn()]


def bytes_at(address: int, size: int) -> set[int]:
    """Return the values of the device's bytes there."""
    make = torch._C._construct_storage_from_data_pointer  # noqa: SLF001
    storage = make(address, torch.device("cuda", 0), size)
    return set(torch.tensor([], dtype=torch.uint8, device="cuda").set_(storage).cpu().tolist())


@contextlib.contextmanager
def advancing(stream: torch.cuda.Stream) -> Iterator[None]:
    """Let the work of one stream happen inside, while that of others waits."""
    is_over = threading.Event()

    def advance() -> None:
        while not is_over.wait(0.001):
            control.advance(stream.cuda_stream, 1)

    thread = threading.Thread(target=advance)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def checked() -> dict[str, Any]:
    """Return what the checks of replays see: what was spoiled, and who ran beside whom."""
    with gmlake.graphs_take_turns("checked", check=True):
        first, second = Captured(1), Captured(2)
    first.result.copy_(torch.full((MIB,), 7, dtype=torch.uint8))
    first.graph.replay()
    torch.cuda.synchronize()
    seen: dict[str, Any] = {
        "temporary": sorted(bytes_at(first.temporary, 30 * MIB)),
        "result": sorted(bytes_at(first.result.data_ptr(), MIB)),
    }
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    with control.paced("manual"):
        with torch.cuda.stream(one):
            first.graph.replay()
            first.graph.replay()  # on the same stream: one after the other
        with advancing(other), torch.cuda.stream(other):
            try:
                second.graph.replay()
                seen["beside"] = "not found"
            except gmlake.Error as error:
                seen["beside"] = str(error)
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        other.wait_stream(one)
        second.graph.replay()
    torch.cuda.current_stream().wait_stream(other)
    first.graph.replay()
    torch.cuda.synchronize()
    return seen


def main() -> None:
    with gmlake.enabled():
        results = {
            "serve": serve(),
            "names": names(),
            "callables": callables(),
            "eager_pool": eager_pool(),
            "interrupted": interrupted(),
            "refusals": refusals(),
        }
    print(json.dumps(results))


def main_checked() -> None:
    with gmlake.enabled():
        print(json.dumps(checked()))


if __name__ == "__main__":
    import sys

    main_checked() if sys.argv[1:] == ["checked"] else main()
