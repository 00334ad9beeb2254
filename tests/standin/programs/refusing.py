"""What regions and elastic tensors do where something is in the way; prints JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.failures import failure
from torch.multiprocessing.reductions import reduce_tensor

import gmlake
from gmlake.diagnosis.operators import operator_report
from gmlake.planner import autoplan
from gmlake.pytorch import locking, sleeping

if TYPE_CHECKING:
    from collections.abc import Callable

Result = dict[str, Any]
MIB = 1 << 20
told: list[str] = []


def fails(call: Callable[..., object], *arguments: Any) -> str:
    """Return the kind and text of what a call raises."""
    return failure(lambda: call(*arguments))


def raising(name: str) -> None:
    """Refuse, as a hook."""
    raise RuntimeError(f"hook of {name}")


def fill(name: str, **options: Any) -> torch.Tensor:
    """Have memory in a region."""
    with gmlake.region(name, **options):
        return torch.empty(MIB, dtype=torch.uint8, device="cuda")


def hooks() -> Result:
    """A hook raises before and after; a lake cannot sleep."""
    kept = [fill("w", backup="cpu"), fill("x")]
    gmlake.on_sleep(lambda n: told.append(f"{n} sleeps"), lambda n: told.append(f"{n} woke"))
    forget = gmlake.on_sleep(raising)
    late = gmlake.on_sleep(lambda n: told.append(f"late {n} sleeps"))
    before = fails(gmlake.sleep, "w")
    heard_before, awake = told.copy(), not gmlake.regions()[0].is_asleep
    forget()
    late()
    told.clear()
    gmlake.sleep("w")
    forget = gmlake.on_sleep(None, raising)
    gmlake.on_sleep(None, lambda n: told.append(f"last {n} woke"))
    after = fails(gmlake.wake)
    heard_after = told.copy()
    forget()
    told.clear()
    bad = fill("bad")
    reduce_tensor(bad)  # shared with other processes, it cannot sleep
    driver = fails(gmlake.sleep)
    states = [each.is_asleep for each in gmlake.regions()]
    del kept, bad
    return {
        "before": before,
        "awake": awake,
        "heard_before": heard_before,
        "after": after,
        "heard_after": heard_after,
        "driver": driver,
        "states": states,
        "heard_driver": told.copy(),
    }


def fork() -> Result:
    """A child of a process in which other threads hold each lock."""
    kept = fill("w", backup="cpu")
    gmlake.on_sleep(lambda _name: None)
    go, ready = threading.Event(), threading.Event()
    locks = (
        *(locking.lock, sleeping._lock),  # noqa: SLF001
        *(operator_report._turn.lock, autoplan._turn._lock),  # noqa: SLF001
    )

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        ready.set()
        go.wait()

    threading.Thread(target=hold, daemon=True).start()
    ready.wait()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        seen = {
            "regions": gmlake.regions(),
            "sleep": fails(gmlake.sleep, "w"),
            "enter": fails(gmlake.region("w").__enter__),
            "enabled": gmlake.is_enabled(),
            "others": [operator_report._turn.lock.acquire()],  # noqa: SLF001
        }
        os.write(writing, json.dumps(seen).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    go.set()
    del kept
    return {"status": status, **json.loads(os.read(reading, 1 << 16) or b"{}")}


def settings() -> Result:
    """Other settings where only a region was used."""
    kept = fill("w")
    refused = fails(gmlake.enable, "plan")
    with gmlake.enabled("caching"):
        inside = fails(gmlake.region("w").__enter__)
        in_exportable = fails(gmlake.exportable().__enter__)
        outside = torch.empty(8 * MIB, device="cuda")
    live = gmlake.regions()[0].live_bytes
    with gmlake.region("w"):
        reverse = fails(gmlake.enabled("caching").__enter__)
        still = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    grown = gmlake.regions()[0].live_bytes - live
    del outside, still, kept
    return {
        "refused": refused,
        "stays": gmlake.is_enabled(),
        "inside": inside,
        "in_exportable": in_exportable,
        "reverse": reverse,
        "served": grown == 4 * MIB,
        "other": fails(gmlake.enabled(capacity="1GiB").__enter__),
    }


def odd() -> Result:
    """Arguments that mean nothing."""
    cache = gmlake.elastic((10, MIB))
    cache.resize(3)

    return {
        "copy": fails(copy.copy, cache),
        "deepcopy": fails(copy.deepcopy, cache),
        "pickle": fails(pickle.dumps, cache),
        "memory": fails(copy.copy, cache._memory),  # noqa: SLF001
        "rows": [fails(cache.resize, rows) for rows in (1.5, None, "2", float("nan"))],
        "unharmed": tuple(cache.resize(4).shape) == (4, MIB),
        "dtypes": [fails(gmlake.elastic, (4, 4), dtype) for dtype in (int, "float32")],
        "backup": fails(lambda: gmlake.region("q", backup="disk")),
        "left": [name for name in sleeping._named if name == "q"],  # noqa: SLF001
    }


def streams() -> Result:
    """Rows are ordered behind whom their memory served, and before whom it serves."""
    waits: list[tuple[int, int]] = []
    plain = torch.cuda.Stream.wait_stream

    def noting(self: torch.cuda.Stream, stream: torch.cuda.Stream) -> None:
        waits.append((self.cuda_stream, stream.cuda_stream))
        plain(self, stream)

    torch.cuda.Stream.wait_stream = noting  # type: ignore[method-assign, assignment]
    own, other = torch.cuda.current_stream(), torch.cuda.Stream()
    cache = gmlake.elastic((100, MIB), torch.uint8)
    behind, before = (other.cuda_stream, own.cuda_stream), (own.cuda_stream, other.cuda_stream)
    seen = []
    with torch.cuda.stream(other):
        for rows in (10, 11, 11, 30, 30, 2):
            cache.resize(rows)
            seen.append(waits.copy())
            waits.clear()
    cache.close()
    words = {behind: "behind", before: "before"}
    return {"seen": [[words.get(wait, "other") for wait in each] for each in seen]}


def idle() -> Result:
    """What PyTorch's own allocator holds idle goes back before growing is refused."""
    cache = gmlake.elastic((900, MIB), torch.uint8)
    with gmlake.enabled("caching"):
        del_me = torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")
    del del_me
    held = torch.cuda.memory_reserved() >= 700 * MIB
    return {"held": held, "grown": cache.resize(600).shape[0] == 600}


def many() -> Result:
    """The cost of regions() grows as they do: in calls, not in time."""
    costs = []
    kept: list[Any] = []
    for count in (50, 100):
        while len(kept) < count:
            kept.append(fill(f"r{len(kept)}"))
        calls = 0

        def count_calls(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count_calls)
        gmlake.regions()
        sys.setprofile(None)
        costs.append(calls)
    return {"linear": costs[1] < 2.5 * costs[0], "calls": costs}


def main() -> None:
    """Print what was seen."""
    gmlake.enable()
    parts = (hooks, fork, settings, odd, streams, idle, many)
    found = {one.__name__: one for one in parts}
    print(json.dumps(found[sys.argv[1]]()))


if __name__ == "__main__":
    main()
