"""Memory that goes from one process to another as files; prints what was seen as JSON.

Runs on a stand-in of 80 GiB whose memory has bytes and which two processes share: chunks are 128
MiB there. With the argument `few` it runs the part about few files; without bytes, since memory of
another process takes a second file where it has some. With `rows`, in 8 GiB and chunks of 64 MiB,
the part about an elastic tensor.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.programs.neighbours import MIB, Other, are_marked, marks, refused, taken

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable

Result = dict[str, Any]
GIB = 1 << 10  # in MiB
BLOCK = 512


def blocks(size: int) -> list[torch.Tensor]:
    """Return so many MiB in blocks of half a GiB, as a program takes them."""
    return [taken(BLOCK * MIB) for _ in range(size // BLOCK)]


def handed() -> int:
    """Return how many MiB came as files so far."""
    return gmlake.sharing().handed_bytes // MIB


def tickets(process: int | str = "self") -> int:
    """Return how many files of chunks a process has open."""
    links = [each for each in Path(f"/proc/{process}/fd").iterdir() if each.is_symlink()]
    count = sum(each.readlink().name == "devices" for each in links)
    return max(0, count - 1)  # the stand-in keeps one


def free() -> int:
    """Return how many MiB the device has left."""
    return int(torch.cuda.mem_get_info()[0]) // MIB


def comes(other: Other) -> Result:
    """Most of what another process gives comes as files, and has this process's bytes only."""
    other.tell("idle", 60 * GIB)
    before, taken_before = handed(), gmlake.sharing().taken_bytes // MIB
    mine = blocks(50 * GIB)
    came = handed() - before
    marks(mine, 7)
    given = other.tell("hold", 20 * GIB)
    counted = gmlake.sharing().taken_bytes // MIB - taken_before
    is_same = are_marked(mine, 7)
    held = tickets()
    return {
        "most": came > 0.7 * (50 - 19) * GIB,
        "of_what_was_given": came <= counted and given >= 0,
        "bytes": is_same,
        "a_file_for_each": 0 < held <= came // 64,
        "reserved": torch.cuda.memory_reserved() >= 50 * GIB * MIB,
    }


def goes_back(other: Other) -> Result:
    """What came from another process is given on as well, though the driver does not export it."""
    other.tell("idle", 60 * GIB)
    mine = blocks(60 * GIB)
    came = tickets()
    del mine
    other.tell("idle", 60 * GIB)  # needs what this process holds idle
    there = tickets(other.process.pid)
    return {"came": came > 100, "went": tickets() < came - 100, "there": there > 100}


def goes_to_the_device(other: Other) -> Result:
    """empty_cache() leaves it to the device, also what nothing has taken yet."""
    other.tell("idle", 60 * GIB)
    mine = blocks(40 * GIB)
    had = tickets()
    del mine
    gc.collect()
    torch.cuda.empty_cache()
    other.tell("drop")
    return {"came": had > 100, "closed": tickets() == 0, "free": free() > 78 * GIB}


def is_not_inherited(other: Other) -> Result:
    """A child would hold the memory."""
    other.tell("idle", 60 * GIB)
    mine = blocks(60 * GIB)
    had = tickets()
    down, up = os.pipe()
    if os.fork() == 0:
        os.write(up, bytes([min(255, tickets())]))
        os._exit(0)
    left = os.read(down, 1)[0]
    os.wait()
    kept = tickets() == had and are_marked_after(mine)
    return {"came": had > 100, "none": left == 0, "kept": kept}


def are_marked_after(tensors: list[torch.Tensor]) -> bool:
    marks(tensors, 3)
    return are_marked(tensors, 3)


def few_files(other: Other) -> Result:
    """A process that may open few files gets its memory through the device."""
    other.tell("idle", 60 * GIB)
    before = handed()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 2 * len(list(Path("/proc/self/fd").iterdir())) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    mine = blocks(60 * GIB)
    had = tickets()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    came = handed() - before
    return {"served": len(mine) == 120, "half": 0 < had <= few // 2, "some": 0 < came < 20 * GIB}


def rows(other: Other) -> Result:
    """What an elastic tensor had is another process's, also where it grows again, and sleeps."""
    filler = taken(3 * GIB * MIB)
    with gmlake.region("rows", backup="cpu"):
        cache = gmlake.elastic((4 * GIB, MIB), torch.uint8)
    cache.resize(3 * GIB)
    cache.resize(64)
    other.tell("hold", 3 * GIB)
    other.tell("mark", 200)
    given = gmlake.sharing().given_bytes // MIB
    del filler
    torch.cuda.empty_cache()
    marks([cache.resize(3 * GIB)], 7)
    is_theirs = other.says("has", 200)
    gmlake.sleep("rows")
    gmlake.wake("rows")
    return {
        "given": given > GIB and tickets(other.process.pid) > 0,
        "theirs": is_theirs,
        "kept": are_marked([cache.tensor], 7),
    }


def waiting(held: int) -> int:
    """Return how many MiB came that nothing has taken yet; held: by the other one."""
    return 80 * GIB - free() - torch.cuda.memory_reserved() // MIB - held


def take_some(other: Other, size: int) -> tuple[list[torch.Tensor], int]:
    """Return so many MiB in blocks, some of it the other's, and what waits then."""
    other.tell("idle", 60 * GIB)
    mine = blocks(size)
    size = waiting(60 * GIB - other.tell("look"))
    return mine, size


def goes_on(other: Other) -> Result:
    """What nothing has taken yet is idle: another one gets it."""
    mine, size = take_some(other, 50 * GIB)
    had, reserved = tickets(), torch.cuda.memory_reserved()
    other.tell("drop")
    other.tell("hold", free() + size // 2)
    is_kept = torch.cuda.memory_reserved() == reserved and len(mine) == 100
    came = tickets(other.process.pid)
    return {"waits": size >= 512, "went": tickets() < had, "came": came > 0, "kept": is_kept}


def is_dropped(other: Other) -> Result:
    """It goes to the device where chunks of other sizes are needed."""
    mine, size = take_some(other, 50 * GIB)
    other.tell("drop")
    other.tell("hold", free() - 256)
    small = [taken(20 * MIB) for _ in range(size // 2 // 20)]
    return {"waits": size >= 512, "served": len(mine) + len(small) > 100}


def leaves_some(other: Other) -> Result:
    """CUDA takes memory itself, which files do not free."""
    other.tell("idle", free())
    before = free()
    mine = blocks(20 * GIB)
    return {"before": before < 256, "after": free() >= 256, "served": len(mine) == 40}


def natives(other: Other) -> Result:
    """What PyTorch's own allocator takes has to be free on the device."""
    other.tell("idle", 70 * GIB)
    before = handed()
    with gmlake.enabled("caching"):
        mine = taken(40 * GIB * MIB)
    came = handed() - before
    del mine
    torch.cuda.empty_cache()
    return {"through_the_device": came == 0}


def natives_last(other: Other) -> Result:
    """What came as files and nothing has taken goes to the device for it."""
    mine, size = take_some(other, 50 * GIB)
    with gmlake.enabled("caching"):
        native = not refused((free() + size // 2) * MIB)
    torch.cuda.empty_cache()
    return {"waits": size >= 512, "served": native and len(mine) == 100}


def killed(other: Other) -> Result:
    """One that is killed leaves all of the device, whoever made its chunks."""
    other.tell("idle", 60 * GIB)
    mine = blocks(40 * GIB)
    other.process.kill()
    other.process.wait()
    mine += blocks(38 * GIB)
    marks(mine, 5)
    return {"all": len(mine) == 156, "bytes": are_marked(mine, 5)}


def is_lent() -> Result:
    """A third process can map what came from another one, as any memory."""
    other = Other()
    other.tell("idle", 60 * GIB)
    mine = blocks(60 * GIB)
    came = tickets()
    sizes = [len(bytes(ForkingPickler.dumps(each))) for each in mine]
    return {"came": came > 100, "lent": min(sizes) > 0, "ended": other.end() == 0}


def main() -> int:
    """Run all parts, and print."""
    torch.cuda.init()
    gmlake.enable(share="device")
    taken(1)
    results: Result = {}
    other = Other()
    if sys.argv[1:] == ["few"]:
        print(json.dumps({"few_files": few_files(other)}))
        return 0
    if sys.argv[1:] == ["rows"]:
        print(json.dumps({"rows": rows(other)}))
        return 0
    parts: list[Callable[[Other], Result]] = [
        comes, goes_back, goes_on, is_dropped, leaves_some, goes_to_the_device, is_not_inherited,
        natives, natives_last, killed,
    ]  # fmt: skip
    for part in parts:
        results[part.__name__] = part(other)
        gc.collect()
        if part is not killed:
            torch.cuda.empty_cache()
            other.tell("drop")
    gc.collect()
    torch.cuda.empty_cache()
    results["is_lent"] = is_lent()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
