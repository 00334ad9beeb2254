"""Regions that sleep and wake, with real bytes; prints what was seen as JSON.

Runs on a stand-in of two devices whose memory has bytes. Kernels compute nothing there, but what
was copied is found again.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
import threading
from typing import Any

import torch
from tests.standin.failures import failure

import gmlake

Result = dict[str, Any]
MIB = 1 << 20


def numbers(count: int, first: int = 0) -> torch.Tensor:
    """Return a tensor on the host with no two numbers alike."""
    return torch.arange(first, first + count, dtype=torch.float32)


def free_bytes(device: int = 0) -> int:
    """Return what the device has left."""
    return int(torch.cuda.mem_get_info(device)[0])


def contents(backup: str) -> Result:
    """Send numbers into a region, let it sleep while others use the memory, and look again."""
    name = f"weights-{backup}"
    expected = [numbers(count, count) for count in (10, 300_000, 5_000_000, 70_001)]
    with gmlake.region(name, backup=backup):
        kept = [each.cuda() for each in expected]
        other = numbers(1_000_000).to("cuda:1")
    addresses = [each.data_ptr() for each in kept]
    before = free_bytes()
    slept = gmlake.sleep(name)
    gained = free_bytes() - before
    meanwhile = numbers(6_000_000).cuda()
    live = [each.live_bytes for each in gmlake.regions() if each.name == name]
    del meanwhile
    woken = gmlake.wake(name)
    return {
        "contents": all(torch.equal(a.cpu(), b) for a, b in zip(kept, expected, strict=True)),
        "other_device": torch.equal(other.cpu(), numbers(1_000_000)),
        "addresses": addresses == [each.data_ptr() for each in kept],
        "gained": gained >= sum(each.numel() * 4 for each in expected),
        "report": slept.moved_bytes == woken.moved_bytes > 25 * MIB,
        "live": live[0] >= sum(each.numel() * 4 for each in expected),
        "text": "on the device now" in str(slept),
    }


def without_backup() -> Result:
    """Contents go where nobody asks for them; what is not in the region stays."""
    outside = numbers(1000).cuda()
    with gmlake.region("cache"):
        inside = numbers(3_000_000).cuda()
    address = inside.data_ptr()
    gmlake.sleep("cache")
    stays = torch.equal(outside.cpu(), numbers(1000))
    gmlake.wake("cache")
    inside.copy_(numbers(3_000_000, 7))
    return {
        "outside_stays": stays,
        "usable": torch.equal(inside.cpu(), numbers(3_000_000, 7)),
        "same_address": inside.data_ptr() == address,
    }


def who_is_in() -> Result:
    """Nested regions, other threads, the decorator, and the end of a block."""
    with gmlake.region("outer"):
        first = torch.empty(MIB, device="cuda")
        with gmlake.region("inner"):
            second = torch.empty(2 * MIB, device="cuda")
        third: list[torch.Tensor] = []

        def elsewhere() -> None:
            third.append(torch.empty(4 * MIB, device="cuda"))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    @gmlake.region("decorated")
    def make() -> torch.Tensor:
        return torch.empty(3 * MIB, device="cuda")

    fourth = make()
    live = {each.name: each.live_bytes for each in gmlake.regions()}
    del first, second, fourth
    third.clear()
    return {
        "outer": live["outer"] == 4 * MIB,
        "inner": live["inner"] == 8 * MIB,
        "decorated": live["decorated"] == 12 * MIB,
    }


def everywhere() -> Result:
    """A region of all threads: gradients, which PyTorch's threads make, lie in it, too."""
    weights = torch.ones(MIB, device="cuda", requires_grad=True)

    def live(name: str) -> int:
        return sum(each.live_bytes for each in gmlake.regions() if each.name == name)

    def backward() -> None:
        (weights * 2).sum().backward()

    with gmlake.region("own"):
        backward()
    gradient = weights.grad
    weights.grad = None
    own = gradient is not None and live("own") < 4 * MIB
    del gradient
    seen: list[int] = []

    def elsewhere() -> None:
        with gmlake.region("own"):
            kept = torch.empty(MIB, device="cuda")
            seen.append(live("own"))
        del kept

    with gmlake.region("all", everywhere=True):
        backward()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    inside = live("all")
    after = torch.empty(8 * MIB, device="cuda")
    found = {
        "own": own,
        "all": 4 * MIB <= inside < 8 * MIB,
        "own_in_all": seen[0] >= 4 * MIB,
        "over": live("all") == inside,
    }
    del after
    weights.grad = None
    return found


def errors() -> Result:
    """What must not be done, and what it says."""
    with gmlake.region("errors", backup="cpu"):
        tensor = numbers(1000).cuda()
    gmlake.sleep("errors")

    def allocate() -> None:
        with gmlake.region("errors", backup="cpu"):
            torch.empty(100, device="cuda")

    found = {
        "asleep": failure(lambda: gmlake.sleep("errors")),
        "allocating": failure(allocate),
        "saved": gmlake.pytorch.sleeping.saved_bytes(tensor) is not None,
    }
    gmlake.wake("errors")
    found |= {
        "awake": failure(lambda: gmlake.wake("errors")),
        "unknown": failure(lambda: gmlake.sleep("nobody")),
        "options": failure(lambda: gmlake.region("errors").__enter__()),
        "backup": failure(lambda: gmlake.region("more", backup="tape")),
        "once": failure(lambda: gmlake.sleep("errors", backup="tape")),
        "contents": torch.equal(tensor.cpu(), numbers(1000)),
    }
    gmlake.sleep("errors")
    gmlake.wake("errors", keep_backup=False)
    found["not_saved"] = gmlake.pytorch.sleeping.saved_bytes(tensor) is None
    return found


def too_little() -> Result:
    """Wake with too little memory: refused, asleep as before, and awake when there is room."""
    gc.collect()
    torch.cuda.empty_cache()
    names = ("big-1", "big-2")
    kept = []
    for name in names:
        with gmlake.region(name):
            kept.append(numbers(40_000_000).cuda())
    gmlake.sleep(*names, backup="disk")  # what the refused waking must use again
    taken = torch.empty(free_bytes() - 200 * MIB, dtype=torch.uint8, device="cuda")
    refused = failure(lambda: gmlake.wake(*names))
    states = [each.is_asleep for each in gmlake.regions() if each.name in names]
    del taken
    gmlake.wake(*names, keep_backup=False)
    return {
        "refused": refused,
        "asleep": states == [True, True],
        "contents": all(torch.equal(each.cpu(), numbers(40_000_000)) for each in kept),
    }


def freed_while_asleep() -> Result:
    """Tensors of a sleeping region end like others, and their memory is not taken again."""
    with gmlake.region("short", backup="cpu"):
        kept, gone = numbers(2_000_000).cuda(), numbers(9_000_000).cuda()
    gmlake.sleep("short")
    del gone
    torch.cuda.empty_cache()
    woken = gmlake.wake("short")
    return {
        "less": woken.moved_bytes < 30 * MIB,
        "contents": torch.equal(kept.cpu(), numbers(2_000_000)),
    }


def graphs() -> Result:
    """A captured copy replays after its pool has slept."""
    source = numbers(1_000_000).cuda()
    static = torch.empty_like(source)
    graph = torch.cuda.CUDAGraph()
    with gmlake.region("graphs", graphs=True), torch.cuda.graph(graph):
        between = source.clone()
        static.copy_(between)
    live = [each.reserved_bytes for each in gmlake.regions() if each.name == "graphs"]
    gmlake.sleep("graphs")
    gmlake.wake("graphs")
    source.copy_(numbers(1_000_000, 5))
    graph.replay()
    torch.cuda.synchronize()
    replayed = torch.equal(static.cpu(), numbers(1_000_000, 5))
    del between
    graph.reset()
    gc.collect()
    torch.cuda.empty_cache()
    left = [each.reserved_bytes for each in gmlake.regions() if each.name == "graphs"]
    # What stays is the state of the random generators, which PyTorch makes at its first capture.
    return {
        "in_region": live[0] >= 4_000_000,
        "replayed": replayed,
        "given_back": left[0] <= 2 * MIB,
    }


def hooks() -> Result:
    """Who registers memory is told before it goes and after it came."""
    told: list[tuple[str, str]] = []
    forget = gmlake.on_sleep(
        lambda n: told.append(("before", n)), lambda n: told.append(("after", n))
    )
    with gmlake.region("hooked"):
        kept = torch.empty(MIB, device="cuda")
    gmlake.sleep("hooked")
    gmlake.wake("hooked")
    forget()
    gmlake.sleep("hooked")
    gmlake.wake("hooked")

    def refuse(_: str) -> None:
        raise LookupError("not now")

    forget = gmlake.on_sleep(refuse)
    refused = failure(lambda: gmlake.sleep("hooked"))
    forget()
    awake = [not each.is_asleep for each in gmlake.regions() if each.name == "hooked"]
    del kept
    return {
        "told": told == [("before", "hooked"), ("after", "hooked")],
        "refused": refused == "LookupError: not now",
        "awake": awake == [True],
    }


def statistics() -> Result:
    """PyTorch's figures count regions like the rest."""
    gc.collect()
    torch.cuda.empty_cache()
    before, held = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    with gmlake.region("counted"):
        kept = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    allocated = torch.cuda.memory_allocated() - before
    reserved = torch.cuda.memory_reserved() - held
    segments = torch.cuda.memory_snapshot()
    inside = [
        each
        for each in segments
        if each["address"] <= kept.data_ptr() < each["address"] + each["total_size"]
    ]
    del kept
    return {
        "allocated": allocated == 8 * MIB,
        "reserved": reserved >= 8 * MIB,
        "snapshot": len(inside) == 1,
    }


def main() -> int:
    """Print what was seen."""
    early = failure(lambda: gmlake.region("early").__enter__())
    gmlake.enable()
    results: Result = {
        "early": early,
        "cpu": contents("cpu"),
        "disk": contents("disk"),
        "without": without_backup(),
        "who": who_is_in(),
        "everywhere": everywhere(),
        "errors": errors(),
        "freed": freed_while_asleep(),
        "graphs": graphs(),
        "hooks": hooks(),
        "statistics": statistics(),
        "too_little": too_little(),
    }
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
