"""Boots SGLang's scheduler in a process that is forecast: it sizes its cache and captures graphs.

SGLang does not measure what a step takes: it leaves a share of the device to it, of which the
decision is its own (mem_fraction_static). What is told of a step is the peak of the largest graph.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, Final, NoReturn

import torch

from gmlake.standin import engines

_NAMES: Final = {"tensor_parallel_size": "tp_size", "max_num_seqs": "max_running_requests"}
_VALUES: Final = {"fp8": "fp8_e4m3"}
"""What vLLM's settings are called here."""


def watch() -> None:
    """Take over where SGLang is about to start its processes, if this process is forecast."""
    if not engines.is_watched():
        return
    arguments: Any = import_module("sglang.srt.server_args").ServerArgs
    resolve = arguments.resolve_once

    @functools.wraps(resolve)
    def resolve_once(self: Any) -> None:
        if getattr(self, "_resolution_finished", False):
            return
        with engines.asked() as wanted:
            _prepare(self, wanted["settings"])
            resolve(self)

    def launch(_: Any, settled: Any, ports: Any, *__: Any, **___: Any) -> NoReturn:
        with engines.asked() as wanted:
            engines.end_with(_Engine(wanted["rank"]).found(settled, ports, wanted))

    arguments.resolve_once = resolve_once
    engine: Any = import_module("sglang.srt.entrypoints.engine").Engine
    engine._launch_scheduler_processes = classmethod(launch)


def _prepare(arguments: Any, settings: dict[str, Any]) -> None:
    """Have no weights read, nor a tokenizer where none is. Raises ValueError."""
    named = {_NAMES.get(name, name): _VALUES.get(each, each) for name, each in settings.items()}
    # Ranks that are not there have no memory to share.
    named["disable_custom_all_reduce"] = True
    engines.prepare(arguments, arguments.model_path, named)
    loader: Any = import_module("sglang.kernels.jit.utils.compile.loader")
    loader._find_prebuilt = lambda **_: True
    loader._load = lambda _: engines.Uncompiled()


class _Engine(engines.Held):
    """SGLang's scheduler, and what it says."""

    def __init__(self, rank: int) -> None:
        """rank: the one that boots."""
        self._rank = rank
        self._cache_bytes = self._missing_bytes = 0
        self._runner: Any = None

    def found(self, arguments: Any, ports: Any, asked: dict[str, Any]) -> dict[str, Any]:
        """Boot; return all figures. arguments, ports: as SGLang starts its schedulers with."""
        context: Any = import_module("sglang.srt.runtime_context")
        parallel = context.get_parallel()
        self.world = int(parallel.tp_size * parallel.pp_size)
        self._rank %= self.world  # of fewer, where another number of ranks is tried
        if self.world > 1:
            nccl: Any = import_module("sglang.srt.distributed.device_communicators.pynccl")
            nccl.PyNcclCommunicator = lambda *_, **__: None
            queues = import_module("sglang.srt.distributed.device_communicators.shm_broadcast")
            states = import_module("sglang.srt.distributed.parallel_state")
            engines.stand_alone(queues, states, self._rank, self.world)
        self.tell_cuda(torch.cuda, "mem_get_info")
        place = context.SpawnRanks(
            world_rank=self._rank, gpu_id=self._rank % torch.cuda.device_count()
        )
        context.publish(arguments, role="scheduler", ranks=place)
        refused = self._boot(arguments, ports)
        return self._settings(context) | self._memory() | self._cache(asked, refused)

    def _boot(self, arguments: Any, ports: Any) -> str:
        """Boot; return why the engine refuses to, if it has too little memory."""
        workers: Any = import_module("sglang.srt.managers.tp_worker")
        workers.broadcast_pyobj = lambda data, *_, **__: data  # a later rank would receive nothing
        allocate = workers.TpModelWorker.alloc_memory_pool

        def alloc_memory_pool(this: Any, *given: Any, **named: Any) -> None:
            self._runner, before = this.model_runner, torch.cuda.memory_allocated()
            allocate(this, *given, **named)
            self._cache_bytes = torch.cuda.memory_allocated() - before

        workers.TpModelWorker.alloc_memory_pool = alloc_memory_pool
        try:
            managers: Any = import_module("sglang.srt.managers.scheduler")
            self._scheduler = managers.Scheduler(arguments, ports)  # which has all that is held
        except (RuntimeError, ValueError) as error:
            if self._runner is None or "memory" not in str(error):
                raise
            share = 1 - self._runner.mem_fraction_static
            left = int(self._runner.pre_model_load_memory * (1 << 30) * share)
            self._missing_bytes = max(left - torch.cuda.mem_get_info()[0], 0)
            return str(error)
        return ""

    def _settings(self, context: Any) -> dict[str, Any]:
        runner, parallel = self._runner, context.get_parallel()
        model = runner.model_config
        return {
            "engine": f"SGLang {import_module('sglang').__version__}",
            "architecture": model.hf_config.architectures[0],
            "dtype": str(runner.dtype).removeprefix("torch."),
            "ranks": self.world,
            "rank": self._rank,
            "settings": {
                "tensor_parallel_size": parallel.tp_size,
                "pipeline_parallel_size": parallel.pp_size,
                "max_model_len": int(model.context_len),
                "quantization": model.quantization,
                "max_num_seqs": getattr(runner, "max_running_requests", 0),
                "mem_fraction_static": runner.mem_fraction_static,
                "cache_dtype": runner.kv_cache_dtype_str,
                "block_size": runner.page_size,
            },
        }

    def _memory(self) -> dict[str, Any]:
        model = self._runner.model
        tensors = (*model.parameters(), *model.buffers())
        graphs = sum(self._runner.graph_memory_usage.values())
        return self.memory() | {
            "weights_bytes": sum(each.nbytes for each in tensors),
            "activation_bytes": torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated(),
            "graphs_bytes": int(graphs * (1 << 30)),
            "available_bytes": self._cache_bytes,
            "compiling_bytes": 0,
        }

    def _cache(self, asked: dict[str, Any], refused: str) -> dict[str, Any]:
        """Return what the cache holds, and would hold: memory for each token is the same."""
        runner, total = self._runner, torch.cuda.mem_get_info()[1]
        limit, page = int(runner.model_config.context_len), int(runner.page_size)
        tokens = 0 if refused else int(runner.max_total_num_tokens)

        def at_once(held: int, context: int) -> float:
            return min(held / (-(-context // page) * page), float(runner.max_running_requests))

        def other(name: str, more: int) -> list[Any]:
            held = int(tokens * max(self._cache_bytes + more, 0) / self._cache_bytes)
            return [name, held // page, held, at_once(held, limit), "computed"]

        own = runner.mem_fraction_static
        shares = {
            f"mem_fraction_static {each:g}": int((each - own) * total)
            for each in sorted({*engines.SHARES, own})
        }
        taken = torch.cuda.memory_reserved() + self.cuda_bytes()
        shares["gmlake's fill: all that is left"] = max(total - taken, 0)
        contexts = sorted({limit, *asked["contexts"]})
        return {
            "blocks": tokens // page,
            "tokens": tokens,
            "concurrency": [[each, at_once(tokens, each) if tokens else 0.0] for each in contexts],
            "longest": min(limit, tokens),
            "longest_of_model": limit,
            "missing_bytes": self._missing_bytes,
            "others": [other(*each) for each in shares.items()] if tokens else [],
            "refused": refused,
        }
