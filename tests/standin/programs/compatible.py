"""Interfaces of others over gmlake's regions, with real bytes; prints what was seen as JSON.

vLLM itself is not here: modules with the names and the interface of vLLM 0.33 stand in for it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any, ClassVar

import torch

import gmlake
from gmlake.compat.torch_memory_saver import configure_subprocess, torch_memory_saver

Result = dict[str, Any]


def numbers(count: int, first: int = 0) -> torch.Tensor:
    """Return a tensor on the host with no two numbers alike."""
    return torch.arange(first, first + count, dtype=torch.float32)


def failure(call: Any, *arguments: Any) -> str:
    """Return the kind and text of what a call raises."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 (each is looked at)
        return f"{type(error).__name__}: {error}"
    return ""


def saver() -> Result:
    """Pause and resume by tag, with backups of each kind, a graph, and a stretch outside."""
    found: Result = {"enabled": torch_memory_saver.enabled is True}
    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        weights = numbers(1_000_000).cuda()
        with torch_memory_saver.disable():
            outside = numbers(1000, 9).cuda()
    with torch_memory_saver.region(tag="weights"):
        scratch = numbers(2_000_000).cuda()
    with torch_memory_saver.region(tag="disk", enable_disk_backup=True):
        filed = numbers(500_000, 3).cuda()
    source, target = numbers(100_000, 5).cuda(), torch.empty(100_000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch_memory_saver.cuda_graph(graph, tag="graph"):
        between = source.clone()
        target.copy_(between)
    addresses = [each.data_ptr() for each in (weights, scratch, filed)]
    torch_memory_saver.pause("weights")
    saved = torch_memory_saver.get_cpu_backup(weights)
    shown = torch_memory_saver.get_cpu_backup(weights, zero_copy=True)
    found |= {
        "saved": saved is not None and torch.equal(saved, numbers(1_000_000)),
        "shown": shown is not None and torch.equal(shown, numbers(1_000_000)),
        "not_saved": torch_memory_saver.get_cpu_backup(scratch) is None,
        "twice": failure(torch_memory_saver.pause, "weights"),
        "others_stay": torch.equal(outside.cpu(), numbers(1000, 9)),
    }
    torch_memory_saver.pause()
    torch_memory_saver.resume()
    graph.replay()
    torch.cuda.synchronize()
    with configure_subprocess():
        pass
    return found | {
        "weights": torch.equal(weights.cpu(), numbers(1_000_000)),
        "disk": torch.equal(filed.cpu(), numbers(500_000, 3)),
        "replayed": torch.equal(target.cpu(), numbers(100_000, 5)),
        "addresses": addresses == [each.data_ptr() for each in (weights, scratch, filed)],
        "gone": torch_memory_saver.get_cpu_backup(weights) is None,
        "not_paused": failure(torch_memory_saver.resume, "weights"),
        "both": failure(torch_memory_saver.region("x", True, True).__enter__),  # noqa: FBT003
        "backend": failure(torch_memory_saver.region("x", cpu_backup_backend="mmap").__enter__),
    }


def put_vllm_in_place() -> tuple[Any, Any]:
    """Make the modules that the plugin looks for; return the factory and the allocator's class."""

    class CuMemAllocator:
        @staticmethod
        def get_instance() -> Any:
            return "vLLM's own"

    class CuMemBackend:
        def suspend(self, level: int = 1) -> None:
            kept = ("runtime", "cudagraph")
            CuMemAllocator.get_instance().sleep(("weights", *kept) if level == 1 else kept)

        def resume(self, tags: list[str] | None = None) -> None:
            CuMemAllocator.get_instance().wake_up(tags)

    class SleepModeBackendFactory:
        registry: ClassVar[dict[str, tuple[str, str]]] = {}

        @classmethod
        def register_backend(cls, name: str, module: str, kind: str) -> None:
            if name in cls.registry:
                raise ValueError(f"{name} is registered already")
            cls.registry[name] = (module, kind)

    modules = {
        name: ModuleType(name)
        for name in (
            "vllm",
            "vllm.device_allocator",
            "vllm.device_allocator.cumem",
            "vllm.device_allocator.sleep_mode_backend",
        )
    }
    vars(modules["vllm.device_allocator.cumem"])["CuMemAllocator"] = CuMemAllocator
    vars(modules["vllm.device_allocator.sleep_mode_backend"]).update(
        CuMemBackend=CuMemBackend, SleepModeBackendFactory=SleepModeBackendFactory
    )
    sys.modules.update(modules)
    return SleepModeBackendFactory, CuMemAllocator


def vllm() -> Result:
    """Do what vLLM's worker does: load, sleep at both levels, wake by tags."""
    factory, kind = put_vllm_in_place()
    from gmlake.compat.vllm import register

    gmlake.disable()
    register()
    register()
    found: Result = {"left_alone": kind.get_instance() == "vLLM's own"}
    gmlake.enable()
    allocator = kind.get_instance()
    from gmlake.compat.vllm_backend import GmlakeBackend

    found["registered"] = factory.registry == {
        "gmlake": ("gmlake.compat.vllm_backend", "GmlakeBackend")
    }
    found["supported"] = GmlakeBackend.is_supported() is True
    found["empty"] = allocator.get_current_usage() == 0
    with allocator.use_memory_pool(tag="weights"):
        weights = numbers(1_000_000).cuda()
    with allocator.use_memory_pool(tag="kv_cache"):
        cache = numbers(3_000_000).cuda()
    with allocator.use_memory_pool(tag="runtime"):
        state = numbers(2000, 4).cuda()
    found["usage"] = allocator.get_current_usage() >= 16_008_000
    backend = GmlakeBackend()
    before = torch.cuda.mem_get_info()[0]
    backend.suspend(1)
    found["freed"] = torch.cuda.mem_get_info()[0] - before >= 16_000_000
    backend.resume(["weights"])
    found["weights"] = torch.equal(weights.cpu(), numbers(1_000_000))
    found["state"] = torch.equal(state.cpu(), numbers(2000, 4))
    found["cache_sleeps"] = [
        each.is_asleep for each in gmlake.regions() if each.name == "vllm kv_cache"
    ] == [True]
    backend.resume(["kv_cache"])
    cache.copy_(numbers(3_000_000, 8))
    found["cache"] = torch.equal(cache.cpu(), numbers(3_000_000, 8))
    allocator.discard("kv_cache")
    backend.suspend(2)
    backend.resume()
    found["state_again"] = torch.equal(state.cpu(), numbers(2000, 4))
    graph = torch.cuda.CUDAGraph()
    target = torch.empty_like(weights)
    with allocator.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
        between = state.clone()
        target[:2000].copy_(between)
    backend.suspend(1)
    backend.resume()
    graph.replay()
    torch.cuda.synchronize()
    found["graph"] = torch.equal(target[:2000].cpu(), numbers(2000, 4))
    allocator.release_pools()
    allocator.close()
    return found


def main() -> int:
    """Print what was seen."""
    print(json.dumps({"saver": saver(), "vllm": vllm()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
