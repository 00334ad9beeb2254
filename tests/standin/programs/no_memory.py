"""Lets host memory end at each place of what C++ does below PyTorch; prints what is left of it.

The argument is the library made from no_memory.cpp.
"""

# mypy: allow-untyped-calls
# ruff: noqa: E402 (the library comes before PyTorch)

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

memory = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

import torch

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
SECONDS = 300  # of a thread that waits for nothing, however busy the machine is


def block(mib: int = 8) -> torch.Tensor:
    """Return a tensor of so many MiB."""
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def sweep(call: Callable[[], object], prepare: Callable[[], object]) -> list[Any]:
    """Let a call's first allocation fail, its second, and so on.

    Returns whether each was told, whether there was any, and what lives in the end.
    """
    kinds, count = set(), 0
    while True:
        prepare()
        memory.end_after(count)
        try:
            call()
        except (MemoryError, RuntimeError) as error:
            kinds.add("bad_alloc" in str(error) or isinstance(error, MemoryError))
        has_ended = memory.allocations_left() < 0
        memory.end_after(-1)
        if not is_whole():
            print(json.dumps({"a lock is held": count}), flush=True)
            os._exit(1)
        if not has_ended:
            return [sorted(kinds), count > 0, torch.cuda.memory_allocated() // MIB]
        count += 1


def is_whole() -> bool:
    """Whether another thread is still served."""
    thread = threading.Thread(target=lambda: block().data_ptr(), daemon=True)
    thread.start()
    thread.join(SECONDS)
    return not thread.is_alive()


def main() -> None:
    """Sweep over what calls back with a lake's lock held, and what frees."""
    gmlake.enable()
    held = [block(), block(64)]
    torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001
    taken: list[torch.Tensor] = []
    seen: dict[str, Any] = {
        "snapshot": sweep(torch.cuda.memory_snapshot, lambda: None),
        "empty_cache": sweep(torch.cuda.empty_cache, lambda: block(40)),
        "allocate": sweep(lambda: taken.append(block()), taken.clear),
        "free": sweep(taken.clear, lambda: taken.append(block())),
    }
    held.clear()
    seen["left"] = torch.cuda.memory_allocated()
    print(json.dumps(seen), flush=True)
    os._exit(0)  # a thread that hangs would keep the process


if __name__ == "__main__":
    main()
