"""Programs in which CUDA is in use before gmlake begins; each prints what it saw as JSON.

The argument names one of the functions below.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import sys
import threading
import warnings
from typing import Any

import torch
from tests.standin import control
from tests.standin.refusal import refused

import gmlake
from gmlake import _core

MIB = 1 << 20


def block(size: int = 30 * MIB, device: str = "cuda") -> torch.Tensor:
    """Return a tensor of so many bytes."""
    return torch.empty(size, dtype=torch.uint8, device=device)


def is_ours(region: gmlake.Region, tensor: torch.Tensor) -> bool:
    """Tell whether a tensor lies in memory of gmlake."""
    if not region.stats(tensor.device.index):
        return False
    return any(
        start <= tensor.data_ptr() < start + size and is_used
        for part in region.lake(tensor.device.index).regions()
        for start, size, _, is_used in part["ranges"]
    )


def free_bytes(device: int = 0) -> int:
    """Return what the device has left."""
    return int(torch.cuda.mem_get_info(device)[0])


def training() -> dict[str, Any]:
    """Train, backward included, and have the memory back afterwards."""
    from tests.standin.training import Trainer, memory_calls

    torch.cuda.init()
    before = block(500 * MIB)
    free = free_bytes() + before.nbytes
    del before  # PyTorch keeps it: the region must be able to have it
    with gmlake.enabled() as region:
        seen: dict[str, Any] = {"mode": region.mode, "text": repr(region)}
        trainer = Trainer(torch.bfloat16, has_checkpoints=True)
        for _ in range(4):
            trainer.step()
        stats = region.stats()
        # All that PyTorch holds came from gmlake, what the threads of autograd asked for as well.
        seen["reserved"] = [stats["requested_bytes"], torch.cuda.memory_reserved()]
        seen["gradients"] = all(
            is_ours(region, moment)
            for state in trainer.optimizer.state.values()
            for moment in state.values()
            if moment.is_cuda
        )
        trainer.backward()
        seen["of_backward"] = all(
            p.grad is not None and is_ours(region, p.grad) for p in trainer.parameters
        )
        for p in trainer.parameters:
            p.grad = None
        control.reset_calls()
        for _ in range(3):
            trainer.step()
        seen["calls"] = memory_calls(control.calls())
        region.lake().check()
        del trainer, p
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001
    seen["left"] = [free - free_bytes(), torch.cuda.memory_reserved()]
    seen["held"] = region.stats()["reserved_bytes"]
    seen["enabled"] = gmlake.is_enabled()
    after = block()
    seen["outside"] = is_ours(region, after)
    return seen


def survivors() -> dict[str, Any]:
    """Let tensors outlive their region; where memory is backed, their bytes as well."""
    torch.cuda.init()
    torch.cuda.synchronize()
    free = free_bytes()
    with gmlake.enabled() as region:
        expected = torch.arange(30 * MIB, dtype=torch.int64).to(torch.uint8)
        kept = expected.cuda()
        gone = block(60 * MIB)
        del gone
    with gmlake.enabled():
        more = expected.flip(0).cuda()
        again = torch.full((60 * MIB,), 9, dtype=torch.uint8).cuda()
        del again
    seen: dict[str, Any] = {
        "is_whole": kept.cpu().equal(expected) and more.cpu().flip(0).equal(expected),
        "held": free - free_bytes(),
        "reserved": region.stats()["reserved_bytes"],
    }
    del kept, more
    torch.cuda.empty_cache()
    seen["back"] = [free - free_bytes(), region.stats()["reserved_bytes"]]
    for _ in range(200):
        with gmlake.enabled():
            part = block()
        del part
    torch.cuda.empty_cache()
    seen["after_many"] = [free - free_bytes(), region.stats()["live_blocks"]]
    # What tensors leave behind after their region can be had by others without more ado.
    with gmlake.enabled():
        part = block(900 * MIB)
    del part
    seen["handed_on"] = refused(block, 900 * MIB)
    return seen


def regions() -> dict[str, Any]:
    """Nest regions, leave them by exceptions, and empty the cache within."""
    torch.cuda.init()
    seen: dict[str, Any] = {}
    with gmlake.enabled() as region:
        first = block()
        with gmlake.enabled() as inner:
            seen["inner"] = [inner.mode, is_ours(inner, block())]
        seen["outer_goes_on"] = is_ours(region, block())
        seen["twice"] = refused(region.__enter__)
        seen["full"] = refused(gmlake.enabled(mode="full").__enter__)
        seen["other"] = refused(gmlake.enabled("expandable").__enter__)
        held = region.stats()["reserved_bytes"]
        torch.cuda.empty_cache()
        seen["emptied"] = [held > 30 * MIB, region.stats()["reserved_bytes"] == first.nbytes]
        seen["after_emptying"] = is_ours(region, block())
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(is_ours(region, block())))
        thread.start()
        thread.join()
        seen["thread"] = found
        seen["trimmed"] = region.trim() > 0
    seen["not_in_use"] = [list(region.devices), is_ours(region, block())]
    try:
        with gmlake.enabled():
            raise KeyError("a program fails")  # noqa: TRY301
    except KeyError:
        seen["after_exception"] = [gmlake.is_enabled(), is_ours(region, block())]
    del first
    seen["no_device"] = refused(gmlake.enabled(devices=[7]).__enter__)
    seen["lasting"] = [gmlake.enable() is gmlake.enable(), is_ours(region, block())]
    gmlake.disable()
    seen["lasting"] += [gmlake.is_enabled(), is_ours(region, block())]
    return seen


def scarcity() -> dict[str, Any]:
    """Take more in each step than in the one before, on a device that holds the last one once."""
    weight = torch.nn.Parameter(torch.ones(10, device="cuda"))
    optimizer = torch.optim.SGD([weight])
    pools = set()
    refusals = ""
    with gmlake.enabled(mode="pool"):
        for size in range(100, 900, 100):
            refusals += refused(block, size * MIB)
            optimizer.step()
            pools.add(str(pool_id()))
    return {"refusals": refusals, "pools": len(pools)}


def pool_id() -> object:
    """Return the number of the pool that requests go to."""
    from gmlake.pytorch import pool

    return pool._open[0].id  # noqa: SLF001


def devices() -> dict[str, Any]:
    """Use two devices; the second is served where it was in use before, or is named."""
    torch.cuda.init()
    with gmlake.enabled() as region:
        seen: dict[str, Any] = {"first": list(region.devices)}
        other = block(device="cuda:1")
        seen["other_has_lake"] = 1 in _core.torch_devices()
    with gmlake.enabled() as region:
        seen["both"] = list(region.devices)
        seen["ours"] = is_ours(region, block(device="cuda:1"))
    with gmlake.enabled(devices=[1]) as region:
        seen["named"] = list(region.devices)
        seen["named_ours"] = is_ours(region, block(device="cuda:1"))
        seen["unnamed_ours"] = is_ours(region, block())
    with torch.cuda.device(1), gmlake.enabled(devices=[0]) as region:
        seen["current"] = torch.cuda.current_device()
        with torch.cuda.device(0):
            seen["of_other"] = is_ours(region, block())
    del other
    return seen


def graphs() -> dict[str, Any]:
    """Capture within a region, and try to begin one while a graph is captured."""
    torch.cuda.init()
    x = torch.ones(512, 512, device="cuda")
    graph = torch.cuda.CUDAGraph()
    seen: dict[str, Any] = {}
    with gmlake.enabled() as region:
        with torch.cuda.graph(graph):
            y = x * 2
            torch.cuda.empty_cache()
            seen["region"] = refused(gmlake.enabled(devices=[1]).__enter__)
        begin = y.data_ptr()
        eager = [block(MIB) for _ in range(30)]
        seen["is_apart"] = all(abs(part.data_ptr() - begin) >= MIB for part in eager)
        graph.replay()
        torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        seen["within"] = refused(gmlake.enabled().__enter__)
    graph.replay()
    torch.cuda.synchronize()
    seen["is_there"] = y.data_ptr() == begin
    seen["enabled"] = gmlake.is_enabled()
    seen["ours"] = is_ours(region, eager[0])
    return seen


def main() -> None:
    """Do what the argument names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = globals()[sys.argv[1]]()
    said = [str(w.message) for w in caught if w.category is gmlake.GmlakeWarning]
    json.dump(results | {"warnings": said, "misuses": control.misuses()}, sys.stdout)


if __name__ == "__main__":
    main()
