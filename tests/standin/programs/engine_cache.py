"""vLLM's KV cache on what is left of a device, over an engine with vLLM's interface; prints JSON.

Runs on a stand-in of 1 GiB whose memory has bytes.
"""

# ruff: noqa: SLF001 (vLLM's plugins use such functions)
# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from tests.standin.failures import failure
from torch.utils._python_dispatch import TorchDispatchMode

import gmlake
from gmlake.compat import vllm_cache

Result = dict[str, Any]
MIB = 1 << 20
ROW = 1 * MIB  # two layers of 512 KiB
BLOCKS = 800
SPARE = 40


def taken(rows: int) -> torch.Tensor:
    """Return memory of the size of so many blocks."""
    return torch.empty(rows * ROW, dtype=torch.uint8, device="cuda")


class Zeroed(TorchDispatchMode):
    """Notes what memory is made zero, which kernels of the stand-in do not."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: set[int] = set()

    def __torch_dispatch__(
        self, called: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if called is torch.ops.aten.zero_.default:
            self.noted |= self.rows_of(args[0])
        return called(*args, **(kwargs or {}))

    @staticmethod
    def rows_of(tensor: torch.Tensor) -> set[int]:
        return set(range(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, ROW))

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether all of it was, and whether it is more than nothing."""
        return bool(len(tensor)) and self.rows_of(tensor) <= self.noted


class Queue(list[Any]):
    """Free blocks, the first to be used at the front."""

    def append_n(self, blocks: list[Any]) -> None:
        self.extend(blocks)

    def prepend_n(self, blocks: list[Any]) -> None:
        self[:0] = blocks


class Pool:
    """Blocks that requests hold, or that are free and may be found by what was written to them."""

    def __init__(self, count: int, *, enable_caching: bool) -> None:
        self.blocks = [
            SimpleNamespace(block_id=n, ref_cnt=0, block_hash=None) for n in range(count)
        ]
        self.num_gpu_blocks = count
        self.enable_caching = enable_caching
        self.free_block_queue = Queue(self.blocks[1:])
        self.blocks[0].ref_cnt = 1
        self.found: dict[Any, Any] = {}

    def take(self, numbers: range, name: str) -> list[int]:
        """Let a request hold blocks, and write its name's number there."""
        for number in numbers:
            block = self.blocks[number]
            self.free_block_queue.remove(block)
            self.evict_blocks({number})
            block.ref_cnt = 1
            if self.enable_caching:
                block.block_hash = (name, number)
                self.found[block.block_hash] = block
        return list(numbers)

    def evict_blocks(self, numbers: set[int]) -> None:
        for number in numbers:
            self.found.pop(self.blocks[number].block_hash, None)
            self.blocks[number].block_hash = None

    def move_block_hashes(self, source: Any, target: Any) -> None:
        assert target.block_hash is None
        target.block_hash, source.block_hash = source.block_hash, None
        self.found[target.block_hash] = target


class Scheduler:
    """Runs requests, and lets them begin anew."""

    def __init__(self, pool: Pool) -> None:
        self.running: list[Any] = []
        self.waiting: list[Any] = []
        self.prev_step_scheduled_req_ids: set[str] = set()
        self.finished: list[str] = []
        self.held: dict[str, list[int]] = {}
        self.kv_cache_manager = SimpleNamespace(
            block_pool=pool, get_block_ids=lambda name: (self.held[name],)
        )
        self.pool = pool

    def run(self, name: str, numbers: range) -> None:
        request = SimpleNamespace(
            request_id=name, async_tokens_to_discard=0, num_output_placeholders=1
        )
        self.running.append(request)
        self.held[name] = self.pool.take(numbers, name)
        self.prev_step_scheduled_req_ids.add(name)

    def _preempt_request(self, request: Any, _time: float) -> None:
        for number in reversed(self.held.pop(request.request_id)):
            self.pool.blocks[number].ref_cnt = 0
            self.pool.free_block_queue.append(self.pool.blocks[number])
        self.waiting.insert(0, request)

    def add_request(self, request: Any) -> None:
        self.waiting.append(request)

    def finish_requests(self, name: str) -> None:
        self.finished.append(name)

    def reset_prefix_cache(self) -> bool:
        return True


class Runner:
    """A model's cache, as one worker has it."""

    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.cache_config = SimpleNamespace(num_gpu_blocks=BLOCKS)
        self.device = torch.device("cuda:0")
        self._kernel_block_sizes = [16]

    def _allocate_kv_cache_tensors(self, _config: Any) -> Any:
        return "vLLM's own"


class Worker:
    """What runs the model."""

    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.peak_activation_memory = SPARE * ROW * 8 // 9
        self.model_runner: Any = None

    def init_device(self) -> None:
        found = SimpleNamespace(total_memory=1 << 30)
        module: Any = sys.modules["vllm.v1.worker.gpu_worker"]
        self.requested = module.request_memory(found, self.vllm_config.cache_config)
        self.model_runner = Runner(self.vllm_config)


class EngineCore:
    """A worker, its scheduler, and steps of what the test says."""

    cache: Any

    def __init__(self, config: Any, *, caching: bool = True) -> None:
        worker = Worker(config)
        worker.init_device()
        self.worker = worker
        self.memory = worker.model_runner._allocate_kv_cache_tensors(cache_config())
        self.model_executor = SimpleNamespace(driver_worker=SimpleNamespace(worker=worker))
        self.pool = Pool(BLOCKS, enable_caching=caching)
        self.scheduler = Scheduler(self.pool)
        self.work: Any = lambda: None
        self.step_fn: Any = lambda: self.work()  # noqa: PLW0108 (what it is then)


def too_little(_found: Any, _cache: Any) -> int:
    """Refuse, as vLLM does where the device has less than it may use."""
    raise ValueError("less than desired")


def config(**changes: Any) -> Any:
    """Return a VllmConfig."""
    given = SimpleNamespace(
        parallel_config=SimpleNamespace(
            world_size=1, data_parallel_size=1, distributed_executor_backend="uni"
        ),
        cache_config=SimpleNamespace(gpu_memory_utilization=0.9, kv_cache_memory_bytes=None),
        model_config=SimpleNamespace(enable_cumem_allocator=False, max_model_len=16 * 99),
        use_v2_model_runner=False,
        kv_transfer_config=None,
        speculative_config=None,
    )
    for path, value in changes.items():
        place, _, name = path.rpartition("__")
        setattr(getattr(given, place) if place else given, name, value)
    return given


def cache_config(**changes: Any) -> Any:
    """Return a KVCacheConfig of two layers."""
    kind = {"block_size": 16, "indexes_kv_by_block_stride": True, "page_size_padded": None}
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(**(kind | changes)))
    tensors = [
        SimpleNamespace(size=BLOCKS * ROW // 2, shared_by=[name], offset=0, block_stride=0)
        for name in ("first", "second")
    ]
    return SimpleNamespace(num_blocks=BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=[group])


def put_vllm_in_place() -> dict[str, Any]:
    """Make the modules that the plugin looks for; return the names in the first."""
    names = ("", ".v1", ".v1.engine", ".v1.engine.core", ".v1.worker", ".v1.worker.gpu_worker")
    for name in (*names, ".v1.worker.gpu_model_runner"):
        sys.modules["vllm" + name] = ModuleType("vllm" + name)
    vars(sys.modules["vllm.v1.engine.core"])["EngineCore"] = EngineCore
    vars(sys.modules["vllm.v1.worker.gpu_model_runner"])["GPUModelRunner"] = Runner
    vars(sys.modules["vllm.v1.worker.gpu_worker"]).update(Worker=Worker, request_memory=too_little)
    return vars(sys.modules["vllm"])


def registers() -> Result:
    """Nothing is wrapped unless it is asked for, and in the version that it was written for."""
    vllm = put_vllm_in_place()
    before = (EngineCore.__init__, Worker.init_device, Runner._allocate_kv_cache_tensors)

    def is_wrapped(asked: str, version: str = "0.26.1") -> bool:
        vllm["__version__"] = version
        os.environ[vllm_cache.VARIABLE] = asked
        vllm_cache.register()
        now = (EngineCore.__init__, Worker.init_device, Runner._allocate_kv_cache_tensors)
        return now != before

    os.environ[vllm_cache.VARIABLE] = "often"
    return {
        "wrong": failure(vllm_cache.register)
        == "ValueError: GMLAKE_VLLM_CACHE is 'often', but must be 0 or 1",
        "off": not is_wrapped("") and not is_wrapped("0"),
        "other_version": not is_wrapped("1", "0.27.0"),
        "on": is_wrapped("1") and is_wrapped("1"),
        "once": not hasattr(vars(EngineCore)["__init__"].__wrapped__, "__wrapped__"),
    }


def refuses() -> Result:
    """What cannot be served is left to vLLM, which decides as ever whether there is enough."""
    others = {
        "use_v2_model_runner": True,
        "parallel_config__world_size": 2,
        "parallel_config__data_parallel_size": 2,
        "parallel_config__distributed_executor_backend": "mp",
        "kv_transfer_config": "a connector",
        "speculative_config": "a draft",
        "model_config__enable_cumem_allocator": True,
        "cache_config__kv_cache_memory_bytes": 1 << 20,
    }
    found: Result = {
        "said": all(vllm_cache.refusal(config(**{name: value})) for name, value in others.items()),
        "checked": failure(lambda: EngineCore(config(use_v2_model_runner=True)))
        == "ValueError: less than desired",
        "served": vllm_cache.refusal(config()) == "",
    }
    worker = Worker(config())
    worker.init_device()
    runner = worker.model_runner
    kinds = ({"indexes_kv_by_block_stride": False}, {"page_size_padded": 1}, {"block_size": 32})
    found["kinds"] = all(
        runner._allocate_kv_cache_tensors(cache_config(**kind)) == "vLLM's own" for kind in kinds
    )
    several = cache_config()
    several.kv_cache_groups *= 2
    found["several"] = runner._allocate_kv_cache_tensors(several) == "vLLM's own"
    runner.cache_config.num_gpu_blocks = None
    found["profile"] = runner._allocate_kv_cache_tensors(cache_config()) == "vLLM's own"
    gmlake.disable()
    found["not_enabled"] = "does not serve" in vllm_cache.refusal(config())
    gmlake.enable()
    all_of_it = taken(950)
    why = failure(lambda: EngineCore(config()))
    del all_of_it
    torch.cuda.empty_cache()
    found["too_little"] = why.startswith("ValueError: max_model_len=1584 needs 100 MiB of KV cache")
    return found


def begins() -> Result:
    """Layers lie side by side in rows; blocks without memory are not in the pool."""
    held = taken(500)
    with Zeroed() as zeroed:
        engine = EngineCore(config())
    rows = engine.worker.model_runner.gmlake_rows
    limit = engine.pool.num_gpu_blocks
    return {
        "requested": engine.worker.requested == int(0.9 * (1 << 30)),
        "checked_again": sys.modules["vllm.v1.worker.gpu_worker"].request_memory is too_little,
        "one_memory": {each.data_ptr() for each in engine.memory.values()}
        == {rows.whole.data_ptr()},
        "takes": held.numel() + rows.memory_bytes > (1 << 30) - 420 * MIB,
        "spare": limit == rows.rows - SPARE,
        "pool": sorted(each.block_id for each in engine.pool.free_block_queue)
        == list(range(1, limit)),
        "zeros": zeroed.has(rows.tensor),
    }


def gives() -> Result:
    """Between steps requests are preempted; what they have computed is moved, and found."""
    engine = EngineCore(config())
    pool, scheduler = engine.pool, engine.scheduler
    rows = engine.worker.model_runner.gmlake_rows
    limit = pool.num_gpu_blocks
    scheduler.run("early", range(300, 320))
    scheduler.run("low", range(1, 30))
    scheduler.run("gone", range(limit - 60, limit - 50))
    scheduler._preempt_request(scheduler.running.pop(), 0)
    scheduler.waiting.clear()
    scheduler.run("late", range(limit - 50, limit))
    marks = torch.arange(50, dtype=torch.int8)
    rows.whole[limit - 50 : limit].copy_(marks[:, None].expand(50, ROW).contiguous())
    held = taken(400)
    now = pool.num_gpu_blocks
    moved = [pool.found[("late", number)] for number in range(limit - 50, limit)]
    bytes_there = torch.stack([rows.whole[each.block_id].cpu() for each in moved])
    late = scheduler.waiting[0]
    result = {
        "fewer": rows.rows < limit - 50 and now == rows.rows - SPARE,
        "preempted": [each.request_id for each in scheduler.waiting] == ["late"],
        "discards": (late.async_tokens_to_discard, late.num_output_placeholders) == (1, 0),
        "forgotten": "late" not in scheduler.prev_step_scheduled_req_ids,
        "runs": [each.request_id for each in scheduler.running] == ["early", "low"],
        "moved": all(each.block_id < now for each in moved)
        and bool((bytes_there == marks[:, None]).all()),
        "pool": all(each.block_id < now for each in pool.free_block_queue),
        "evicted": all(each.block_id < now for each in pool.found.values()),
        "last": [each.block_id for each in pool.free_block_queue[-50:]]
        == [each.block_id for each in moved],
    }
    rest = torch.cuda.mem_get_info()[0] + rows.memory_bytes
    refused = failure(lambda: taken((rest - 120 * MIB) // ROW))
    now = pool.num_gpu_blocks
    result["keeps_one_request"] = refused.startswith("OutOfMemoryError") and now == 100
    del held  # idle in this process
    scheduler.waiting.clear()
    engine.cache._next_growth = 0.0
    engine.step_fn()
    result["not_without_need"] = pool.num_gpu_blocks == now
    scheduler.add_request(late)
    there = rows.rows
    with Zeroed() as zeroed:
        engine.step_fn()
    grown = pool.num_gpu_blocks
    result["grows"] = grown >= limit - 10
    result["zeros"] = zeroed.has(rows.tensor[there:])
    result["in_front"] = {each.block_id for each in pool.free_block_queue[: grown - now]} == set(
        range(now, grown)
    )
    return result


def steps() -> Result:
    """In a step the engine itself has free blocks at once; other threads wait for its end."""
    engine = EngineCore(config(), caching=False)
    pool, scheduler = engine.pool, engine.scheduler
    rows = engine.worker.model_runner.gmlake_rows
    limit = pool.num_gpu_blocks
    scheduler.run("running", range(limit - 100, limit - 60))
    free = torch.cuda.mem_get_info()[0] // ROW
    order: list[str] = []
    seen: list[Any] = []
    served = threading.Event()

    def other() -> None:
        seen.append(taken(30))
        order.append("other")
        served.set()

    def step() -> None:
        seen.append(taken(free + SPARE // 2))  # of the rows that are kept for that
        order.append(str(pool.num_gpu_blocks == limit))
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        turns = engine.cache._turns
        while not turns._door.locked():
            pass
        seen.append(taken(SPARE))  # and of the blocks that nobody holds
        order.append("own")
        order.append(str(limit - 60 <= pool.num_gpu_blocks < limit and len(scheduler.running) == 1))

    engine.work = step
    engine.step_fn()
    is_served = served.wait(60)
    result = {"order": order == ["True", "own", "True", "other"], "served": is_served}
    engine.work = lambda: None
    engine.step_fn()
    result["replaced"] = pool.num_gpu_blocks == rows.rows - SPARE
    result["preempted"] = scheduler.running == []
    scheduler.finish_requests("one")
    result["passes_on"] = scheduler.finished == ["one"] and scheduler.reset_prefix_cache()
    return result


def main() -> int:
    """Run all parts, and print."""
    torch.cuda.init()
    gmlake.enable()
    kept = vllm_cache.Cache

    def noted(engine: Any, *arguments: Any) -> None:
        engine.cache = kept(engine, *arguments)

    vars(vllm_cache)["Cache"] = noted
    results: Result = {}
    for part in (registers, refuses, begins, gives, steps):
        results[part.__name__] = part()
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
