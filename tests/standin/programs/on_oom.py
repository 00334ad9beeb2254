"""Programs that run out of memory, and leave a file about it."""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import gmlake

MIB = 1 << 20


def tensor(mebibytes: int) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def hold_more(held: list[torch.Tensor]) -> str:
    """Take memory to the end; return what the exception says."""
    try:
        while True:
            held.append(tensor(300))
    except torch.OutOfMemoryError as error:
        return str(error)


def twice(path: str) -> dict[str, Any]:
    """Run out of memory inside of a region, twice, and then outside of it."""
    with gmlake.enabled(on_oom=path):
        kept = [tensor(100) for _ in range(8)]
        del kept[::2]
        first = hold_more(kept)
        before = Path(path).stat() if Path(path).exists() else None
        second = hold_more(kept)
        same = before is not None and Path(path).stat() == before
    del kept
    other = Path(path).with_name("other.pickle")
    hold_more([])
    return {"first": first, "second": second, "same": same, "outside": other.exists()}


def elsewhere(path: str) -> dict[str, Any]:
    """Run out of memory in PyTorch's own allocator, inside of a region: within a pool."""
    with gmlake.enabled(on_oom=path), torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        return {"said": hold_more([])}


def own_history(path: str) -> dict[str, Any]:
    """Keep a history with lines, which is the program's own and stays."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python")  # noqa: SLF001
    with gmlake.enabled(on_oom=path):
        said = hold_more([])
    return {"said": said}


def others(path: str) -> dict[str, Any]:
    """Run out of memory where PyTorch's allocator and somebody else hold some, too."""
    before = tensor(256)
    taken = ctypes.c_void_p()
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuMemAlloc_v2(ctypes.byref(taken), ctypes.c_size_t(128 * MIB)) == 0
    with gmlake.enabled(on_oom=path):
        said = hold_more([before])
    return {"said": said}


def ranks(path: str) -> dict[str, Any]:
    """Be one of several ranks, each of which runs out of memory."""
    os.environ["RANK"] = "3"
    with gmlake.enabled(on_oom=path):
        said = hold_more([])
    return {"said": said}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
