"""What gmlake does while a graph is captured, and under one limit; prints what was seen as JSON."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake.pytorch import lakes

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
GIB = 1 << 30


def some(size: int) -> torch.Tensor:
    """Return so many bytes of the device."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def told(call: Callable[[], object]) -> str:
    """Return which exception a call raises, and its text; "" for none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
        return f"{type(error).__name__}: {error}"
    return ""


def elsewhere(call: Callable[[], object]) -> str:
    """Do the same in another thread."""
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(told(call)))
    thread.start()
    thread.join()
    return texts[0]


def in_capture(call: Callable[[], object], how: Callable[[Callable[[], object]], str]) -> list[str]:
    """Return what the call raised within a capture, and what the capture and its replay did."""
    source, texts = some(MIB), []
    graph = torch.cuda.CUDAGraph()

    def capture() -> None:
        with torch.cuda.graph(graph):
            target = some(MIB)
            target.copy_(source)
            texts.append(how(call))
            target.copy_(source)
        graph.replay()
        torch.cuda.synchronize()

    broken = told(capture)
    return [*texts, broken]


def open_lake(name: str) -> None:
    """Take memory in a region that no lake serves yet."""
    with gmlake.region(name, backup="cpu"):
        some(3 * MIB)


def sweep() -> dict[str, list[str]]:
    """Make each call within a capture, from its thread and from another one."""
    seen = {}
    for thread, how in (("same", told), ("other", elsewhere)):
        with gmlake.region("kept", backup="cpu"):
            kept, idle = some(8 * MIB), some(40 * MIB)
            rows = gmlake.elastic((64, MIB), torch.uint8)
        del idle
        with gmlake.region("asleep", backup="cpu"):
            sleeper = some(8 * MIB)
        gmlake.sleep("asleep")
        torch.cuda.synchronize()
        calls: dict[str, Callable[[], object]] = {
            "sleep": lambda: gmlake.sleep("kept"),
            "wake": lambda: gmlake.wake("asleep"),
            "empty_cache": torch.cuda.empty_cache,
            "open": lambda name=thread: open_lake(name),  # type: ignore[misc]
            "fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.9),
            "resize": lambda rows=rows: rows.resize(4),  # type: ignore[misc]
            "free": lambda kept=kept: kept.untyped_storage().resize_(0),  # type: ignore[misc]
        }
        for name, call in calls.items():
            seen[f"{name} {thread}"] = in_capture(call, how)
        gmlake.wake("asleep")
        rows.close()
        del kept, sleeper
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    return seen


def no_memory(*, graphs: bool) -> list[str]:
    """Run out of memory within a capture while a region holds all of it idle."""
    with gmlake.region("full", graphs=False):
        block = some(6 * GIB)
    texts = []

    def ask() -> None:
        nonlocal block
        del block
        some(6 * GIB)

    def capture() -> None:
        with (
            gmlake.region(f"graphs {graphs}", graphs=graphs),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            texts.append(told(ask)[:60])

    texts.append(told(capture))
    torch.cuda.empty_cache()
    return texts


def failed() -> dict[str, Any]:
    """Let captures in a region fail; all that they held is there again, and all can sleep."""
    with gmlake.region("weights", backup="cpu"):
        weights = some(64 * MIB)

    def capture() -> None:
        with gmlake.region("failed", graphs=True), torch.cuda.graph(torch.cuda.CUDAGraph()):
            some(500 * MIB)
            torch.cuda.synchronize()

    texts = [told(capture).partition(":")[0] for _ in range(3)]
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    slept = told(lambda: (gmlake.sleep(), gmlake.wake()))
    del weights
    return {"texts": texts, "held": (total - free) // MIB, "slept": slept}


def limited() -> dict[str, Any]:
    """Ask for 3 GiB in two regions and outside, of 4 that may be held."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    kept, texts = [], []
    for name in ("first", "second"):
        with gmlake.region(name):
            texts.append(told(lambda: kept.append(some(3 * GIB))))
    texts.append(told(lambda: kept.append(some(3 * GIB))))
    free, total = torch.cuda.mem_get_info()
    gmlake.sleep("first")
    texts.append(told(lambda: kept.append(some(3 * GIB))))
    texts.append(told(lambda: gmlake.wake("first")))
    kept.pop()
    gmlake.wake("first")
    kept.clear()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)
    return {"texts": texts, "held": (total - free) // MIB}


def refusals() -> int:
    """Return how many the device's lake counts."""
    lake = lakes.find(0)
    return lake.stats()["states"]["oom"] if lake is not None else 0


def refused() -> dict[str, Any]:
    """Let one request be refused, and one that no device could hold."""
    before = refusals()
    text = told(lambda: some(100 * GIB))
    count = refusals() - before
    absurd = told(lambda: some(GIB * 8000000000))
    return {"text": text, "absurd": absurd, "count": count}


def rounded() -> list[int]:
    """Change PyTorch's setting, and take memory: what is active and what was asked for."""
    sizes = []
    for setting in ("", "roundup_power2_divisions:4", "garbage_collection_threshold:0.5"):
        torch.cuda.memory._set_allocator_settings(setting)  # noqa: SLF001
        before = torch.cuda.memory_stats()
        block = some(84 * MIB)
        after = torch.cuda.memory_stats()
        sizes += [
            (after[key] - before[key]) // MIB
            for key in ("active_bytes.all.allocated", "requested_bytes.all.allocated")
        ]
        del block
    return sizes


gmlake.enable()
print(
    json.dumps(
        {
            "sweep": sweep(),
            "no_memory": no_memory(graphs=False),
            "no_memory_graphs": no_memory(graphs=True),
            "failed": failed(),
            "limited": limited(),
            "refused": refused(),
            "rounded": rounded(),
        }
    )
)
