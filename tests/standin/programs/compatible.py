"""Interfaces of others over gmlake's regions, with real bytes; prints what was seen as JSON.

vLLM itself is not here: modules with the names and the interface of vLLM 0.33 stand in for it.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from pathlib import Path
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
    source, target = numbers(100_000, 5).cuda(), torch.empty(100_000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch_memory_saver.cuda_graph(graph, tag="graph"):
        between = source.clone()
        target.copy_(between)
    addresses = [each.data_ptr() for each in (weights, scratch)]
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
        "replayed": torch.equal(target.cpu(), numbers(100_000, 5)),
        "addresses": addresses == [each.data_ptr() for each in (weights, scratch)],
        "gone": torch_memory_saver.get_cpu_backup(weights) is None,
        "not_paused": failure(torch_memory_saver.resume, "weights"),
        "disk": failure(torch_memory_saver.region("x", True, True).__enter__),  # noqa: FBT003
        "folder": failure(torch_memory_saver.set_disk_backup_dir, "x"),
        "backend": failure(torch_memory_saver.region("x", cpu_backup_backend="mmap").__enter__),
    }


def retained() -> Result:
    """What was saved stays readable after resuming where that is asked for, in the same place."""
    with torch_memory_saver.region(tag="kept", enable_cpu_backup=True):
        kept = numbers(300_000).cuda()

    def saved() -> torch.Tensor | None:
        return torch_memory_saver.get_cpu_backup(kept, zero_copy=True)

    def address() -> int:
        shown = saved()
        return 0 if shown is None else shown.data_ptr()

    def holds(first: int) -> bool:
        shown = saved()
        return shown is not None and torch.equal(shown, numbers(300_000, first))

    torch_memory_saver.pause("kept")
    place = address()
    torch_memory_saver.retain_cpu_backup = True
    torch_memory_saver.resume("kept")
    kept.copy_(numbers(300_000, 1))
    found: Result = {"kept": holds(0) and address() == place != 0}
    torch_memory_saver.retain_cpu_backup = False
    found["kept_until_next"] = holds(0)
    torch_memory_saver.pause("kept")
    found["refreshed"] = holds(1) and address() == place
    torch_memory_saver.resume("kept")
    found["no_more"] = saved() is None
    return found


def resident_bytes() -> int:
    """Return what this process has of the host's memory."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def returned() -> Result:
    """With "mmap" the host has its memory back after each resume."""
    with torch_memory_saver.region(
        tag="returned", enable_cpu_backup=True, cpu_backup_backend="mmap"
    ):
        large = numbers(40_000_000).cuda()
    before = resident_bytes()
    torch_memory_saver.pause("returned")
    torch_memory_saver.resume("returned")
    contents = torch.equal(large.cpu(), numbers(40_000_000))
    return {"contents": contents, "returned": resident_bytes() - before < 80_000_000}


def live_bytes(name: str) -> int:
    """Return what lives in a region."""
    return sum(each.live_bytes for each in gmlake.regions() if each.name == name)


def library() -> Result:
    """Programs that step out of a region by the functions of its C library."""
    inside: Any = torch_memory_saver._impl  # noqa: SLF001 (as they do)
    cdll = inside._binary_wrapper.cdll  # noqa: SLF001

    def now() -> list[Any]:
        return [
            cdll.tms_get_interesting_region(),
            cdll.tms_get_enable_cpu_backup(),
            cdll.tms_get_current_tag(),
            cdll.tms_get_cpu_backup_backend(),
        ]

    found: Result = {"outside": now() == [False, False, b"default", b"pinned"]}
    with torch_memory_saver.region(tag="stepped", enable_cpu_backup=True):
        found["inside"] = now() == [True, True, b"stepped", b"pinned"]
        first = torch.empty(1 << 20, device="cuda")
        cdll.tms_set_interesting_region(False)  # noqa: FBT003
        second = torch.empty(1 << 20, device="cuda")
        cdll.tms_set_interesting_region(True)  # noqa: FBT003
        third = torch.empty(1 << 20, device="cuda")
        with torch_memory_saver.region(tag="nested", cpu_backup_backend=None):
            found["nested"] = now() == [True, False, b"nested", b"pinned"]
        found["again"] = now() == [True, True, b"stepped", b"pinned"]
    found["over"] = now() == [False, False, b"default", b"pinned"]
    found["stepped_out"] = live_bytes("stepped (cpu)") == 8 << 20
    cdll.tms_pause(b"stepped")
    found["paused"] = [e.is_asleep for e in gmlake.regions() if e.name == "stepped (cpu)"] == [True]
    cdll.tms_resume(b"stepped")
    del first, second, third
    return found


def margin() -> Result:
    """A region leaves a margin to others, who may have it."""
    torch.cuda.empty_cache()
    free_bytes = int(torch.cuda.mem_get_info()[0])
    torch_memory_saver.memory_margin_bytes = free_bytes - (64 << 20)

    def inside() -> torch.Tensor:
        with torch_memory_saver.region(tag="within"):
            return torch.empty(96 << 20, dtype=torch.uint8, device="cuda")

    refused = failure(inside)
    others = torch.empty(96 << 20, dtype=torch.uint8, device="cuda")
    del others
    torch.cuda.empty_cache()
    torch_memory_saver.memory_margin_bytes = 0
    served = failure(inside) == ""
    return {
        "refused": refused.startswith("OutOfMemoryError: CUDA out of memory")
        and " of it is left to others." in refused,
        "served": served,
        "shown": torch_memory_saver.memory_margin_bytes == 0,
    }


def sglang() -> Result:
    """SGLang's adapter finds gmlake's module, before and after it has looked."""
    from gmlake.compat import torch_memory_saver as ours
    from gmlake.compat.sglang import register

    name = "sglang.srt.utils.torch_memory_saver_adapter"
    adapter = ModuleType(name)
    vars(adapter)["import_error"] = ImportError("no torch_memory_saver")
    sys.modules[name] = adapter
    gmlake.disable()
    register()
    found: Result = {"left_alone": "torch_memory_saver" not in sys.modules}
    gmlake.enable()
    register()
    saver = vars(adapter)["_memory_saver"]
    seen = (sys.modules["torch_memory_saver"], vars(adapter)["torch_memory_saver"])
    found["found"] = seen == (ours, ours)
    found["no_error"] = vars(adapter)["import_error"] is None
    with saver.region(tag="weights of sglang", enable_cpu_backup=True):
        weights = numbers(100_000).cuda()
    saver.pause(tag="weights of sglang")
    saver.resume(tag="weights of sglang")
    found["weights"] = torch.equal(weights.cpu(), numbers(100_000))
    return found


def from_environment() -> Result:
    """What the environment says holds for all threads, those of backward passes among them."""
    name = "default (cpu, mmap)"
    weights = torch.ones(1 << 20, device="cuda", requires_grad=True)
    found: Result = {"first": live_bytes(name) == 4 << 20}
    (weights * 2).sum().backward()
    found["gradient"] = 8 << 20 <= live_bytes(name) < 12 << 20
    before = live_bytes(name)
    with torch_memory_saver.region(tag="other"):
        other = torch.empty(1 << 20, device="cuda")
    with torch_memory_saver.disable():
        outside = torch.empty(1 << 20, device="cuda")
    found["nested"] = live_bytes(name) == before and live_bytes("other (not saved)") == 4 << 20
    inside = torch.empty(1 << 20, device="cuda")
    found["again"] = live_bytes(name) == before + (4 << 20)
    found["retains"] = torch_memory_saver.retain_cpu_backup is True
    inner: Any = torch_memory_saver._impl  # noqa: SLF001
    cdll = inner._binary_wrapper.cdll  # noqa: SLF001
    found["library"] = (
        cdll.tms_get_interesting_region()
        and cdll.tms_get_enable_cpu_backup()
        and cdll.tms_get_cpu_backup_backend() == b"mmap"
        and cdll.tms_get_retain_cpu_backup()
    )
    torch_memory_saver.pause()
    torch_memory_saver.resume()
    saved = torch_memory_saver.get_cpu_backup(inside)
    found["saved"] = saved is not None and torch_memory_saver.get_cpu_backup(other) is None
    del other, outside
    return found


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
    torch.empty(64 << 20, dtype=torch.uint8, device="cuda")  # idle from now on
    before = torch.cuda.mem_get_info()[0]
    backend.suspend(1)
    found["freed"] = torch.cuda.mem_get_info()[0] - before >= 16_000_000
    found["idle_goes"] = torch.cuda.mem_get_info()[0] - before >= 16_000_000 + (64 << 20)
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
    return found | {"older": serves_older_vllm()}


def serves_older_vllm() -> bool:
    """Return whether vLLM without backends to choose among gets the allocator."""
    from gmlake.compat.vllm import SleepAllocator, register

    _, kind = put_vllm_in_place()
    backends = "vllm.device_allocator.sleep_mode_backend"
    sys.modules[backends] = None  # type: ignore[assignment]  # as where it is not installed
    register()
    return isinstance(kind.get_instance(), SleepAllocator)


def main() -> int:
    """Print what was seen."""
    if "environment" in sys.argv[1:]:
        print(json.dumps(from_environment()))
        return 0
    found = {"saver": saver(), "retained": retained(), "returned": returned()}
    found |= {"library": library(), "margin": margin(), "sglang": sglang(), "vllm": vllm()}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
