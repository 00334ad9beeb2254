"""Boots a server's engine in a process that is forecast, and writes what it says of its memory.

vLLM's own code reads the program's settings, loads the model without its weights, profiles it,
plans the cache, captures graphs; what SGLang's does is in engine_sglang.py. Then the process ends:
nothing is served. Of several ranks one boots, among process groups that answer for the others.
GMLAKE_FORECAST_ENGINE names the file to write; GMLAKE_FORECAST_ASKED says in JSON what is wanted:
settings, contexts, rank.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from gmlake.fitting import last
from gmlake.pytorch import compat
from gmlake.standin import control, ranks
from gmlake.standin.beyond import beyond

_TOKENIZERS: Final = ("tokenizer*", "vocab.*", "tekken.json", "*.model", "*.tiktoken")
SHARES: Final = (0.8, 0.85, 0.9, 0.95, 0.98)
"""Shares of the device that are told beside the program's own."""

_MOST_MIB: Final = 1 << 24
"""Of a cache, for one request."""

_HOPPER: Final = 9
"""The compute capability of the GPUs where kernels and libraries were measured."""

_OTHER_BYTES: Final = 72 << 20
"""What they take on others, by a public log of vLLM 0.26.0; two more agree with it."""


def is_watched() -> bool:
    """Return whether the engine of this process is forecast."""
    return "GMLAKE_FORECAST_ENGINE" in os.environ and control.is_active()


@functools.cache  # plugins may be loaded again
def watch() -> None:
    """Take over where vLLM makes the configuration of its engine, if this process is forecast."""
    if not is_watched():
        return
    arguments: Any = import_module("vllm.engine.arg_utils").EngineArgs
    make = arguments.create_engine_config

    @functools.wraps(make)
    def create_engine_config(self: Any, *given: Any, **named: Any) -> NoReturn:
        with asked() as wanted:
            prepare(self, self.model, wanted["settings"])
            engine = _Engine(make(self, *given, **named), wanted["rank"])
            end_with(engine.found(wanted["contexts"]))

    arguments.create_engine_config = create_engine_config


@contextmanager
def asked() -> Iterator[dict[str, Any]]:
    """Yield what is wanted; what is raised in the block is told, and ends the process."""
    try:
        yield json.loads(os.environ["GMLAKE_FORECAST_ASKED"])
    except Exception as error:  # noqa: BLE001 (whatever it is, the forecast tells it)
        traceback.print_exc()
        end_with({"error": f"{type(error).__name__}: {error}"})


def end_with(found: dict[str, Any]) -> NoReturn:
    """Write what was found, and end the process."""
    path = Path(os.environ["GMLAKE_FORECAST_ENGINE"])
    path.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
    path.with_suffix(".new").rename(path)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def prepare(arguments: Any, model: str, settings: dict[str, Any]) -> None:
    """Have these settings and no weights read, nor a tokenizer where none is. Raises ValueError.

    No kernel is compiled by nvcc, and none tuned.
    """
    wanted = {**settings, "load_format": "dummy"}
    if not _has_tokenizer(model):
        wanted["skip_tokenizer_init"] = True
    for name, value in wanted.items():
        setattr(arguments, name, value)
    tuner: Any = import_module("triton.runtime.autotuner").Autotuner
    tuner._bench = lambda *_, **__: [0.0, 0.0, 0.0]  # nothing here tells which of them is fastest
    with suppress(ModuleNotFoundError):
        import_module("flashinfer.jit.core").JitSpec.build_and_load = lambda _: Uncompiled()


def _has_tokenizer(model: str) -> bool:
    """Return whether a model brings a tokenizer, or is a name that the engine looks up.

    Raises ValueError for a folder without a configuration.
    """
    folder = Path(model)
    if not (folder.is_dir() or folder.is_absolute()):
        return True
    if not any((folder / name).exists() for name in ("config.json", "params.json")):
        raise ValueError(f"{folder} has no config.json; the one of the model's card is enough")
    return any(True for pattern in _TOKENIZERS for _ in folder.glob(pattern))


class Uncompiled:
    """A library of kernels that nvcc would have to compile: what it has does nothing.

    A plan of its work, which some return, is empty.
    """

    def __getattr__(self, _: str) -> Callable[..., list[int]]:
        return lambda *_, **__: []


class Held:
    """What the process of an engine holds of its device."""

    world = 1  # ranks of the engine

    def tell_cuda(self, module: Any, name: str) -> None:
        """Have what asks for free memory see what CUDA itself has taken, as on a GPU."""
        ask = getattr(module, name)
        vars(module)[name] = lambda *given: (ask(*given)[0] - self.cuda_bytes(), ask(*given)[1])

    def cuda_bytes(self) -> int:
        """Return what CUDA has taken until now: kernels are loaded once one is launched."""
        calls = control.calls()
        taken = beyond(calls, world=self.world, is_checked=True)
        always = taken.context_bytes + taken.communication_bytes
        if not calls.get("cudaLaunchKernel"):
            return always + taken.libraries_bytes
        is_hopper = torch.cuda.get_device_capability()[0] == _HOPPER
        return taken.total_bytes if is_hopper else always + _OTHER_BYTES

    def memory(self) -> dict[str, Any]:
        """Return what the process has in the end. Sizes in bytes."""
        cuda, reserved = self.cuda_bytes(), torch.cuda.memory_reserved()
        free, total = torch.cuda.cudart().cudaMemGetInfo(torch.cuda.current_device())
        beside = total - free - reserved + cuda  # graphs and what libraries allocate themselves
        return {
            "memory_bytes": total,
            "cuda_bytes": cuda,
            "reserved_bytes": reserved,
            "in_use_bytes": reserved + beside,
            "peak_bytes": torch.cuda.max_memory_allocated() + beside,
        }


class _Engine(Held):
    """vLLM's engine, and what it says."""

    def __init__(self, config: Any, rank: int) -> None:
        """config: as vLLM made it. rank: the one that boots."""
        self._core: Any = import_module("vllm.v1.engine.core")
        if getattr(config.quant_config, "modules_in_block_to_quantize", None) == []:
            # GPTQ's are those of the weights; without these, all of the model's blocks, as it does.
            config.quant_config.modules_in_block_to_quantize = ["layers."]
        self._plan = self._core.get_kv_cache_configs
        cache: Any = import_module("vllm.v1.core.kv_cache_utils")
        self._concurrency_of = cache.get_max_concurrency_for_kv_cache_config
        self._config = config
        self.world = int(config.parallel_config.world_size_across_dp)
        self.rank = rank % self.world  # of fewer, where another number of ranks is tried
        self._graphs_bytes = self._compiling_bytes = self._first_peak = self._peak = 0
        self._specs: Any = [{}]
        self._others: tuple[Any, ...] = ()
        self._available = 0

    def found(self, contexts: list[int]) -> dict[str, Any]:
        """Boot; return all figures, and how many requests of these contexts there may be."""
        settings = self._settings()
        if self.world > 1:
            os.environ["VLLM_DISABLE_PYNCCL"] = "1"
            self._config.parallel_config.disable_custom_all_reduce = True
            queues = import_module("vllm.distributed.device_communicators.shm_broadcast")
            states = import_module("vllm.distributed.parallel_state")
            stand_alone(queues, states, self.rank, self.world)
            if self._config.parallel_config.pipeline_parallel_size > 1:
                # A stage waits for what others send.
                worker: Any = import_module("vllm.v1.worker.gpu_worker")
                worker.warmup_kernels = lambda *_, **__: None
        self.tell_cuda(torch.accelerator, "get_memory_info")
        refused = self._boot()
        memory = self._memory()
        return settings | memory | self._cache(contexts, memory) | {"refused": refused}

    def _boot(self) -> str:
        """Boot; return why the engine refuses to, if it has too little memory."""
        self._core.get_kv_cache_configs = self._planned
        try:
            self._core.EngineCore(self._config, _executor(self), log_stats=False)
        except ValueError as error:
            if self._specs == [{}] or "memory" not in str(error):
                raise
            return str(error)
        finally:
            self._core.get_kv_cache_configs = self._plan
        return ""

    def _planned(self, config: Any, specs: Any, available: list[int], *others: Any) -> Any:
        """Plan as a first start does, whose profile compiles, too; its peak is the higher one."""
        self._compiling_bytes = max(self._first_peak - self._peak, 0)
        self._specs, self._available = specs, available[0] - self._compiling_bytes
        self._others = others
        return self._plan(config, specs, [self._available], *others)

    def loaded(self, worker: Any) -> None:
        """See what this worker takes, from the loading of its model on."""
        self._worker = worker
        runner = worker.model_runner
        capture, profile = runner.capture_model, runner.profile_run

        def capture_model(*given: Any, **named: Any) -> int:
            self._graphs_bytes = int(capture(*given, **named))
            return self._graphs_bytes

        def profile_run(*given: Any, **named: Any) -> None:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            profile(*given, **named)
            self._peak = torch.cuda.max_memory_allocated() - before

        runner.capture_model, runner.profile_run = capture_model, profile_run
        if reshape := getattr(runner, "_reshape_kv_cache_tensors", None):

            def without_memory(*given: Any) -> Any:
                with torch.device("meta"):  # it makes a cache on the host to see how that lies
                    return reshape(*given)

            runner._reshape_kv_cache_tensors = without_memory
        with torch.inference_mode():
            runner.profile_run()
        self._first_peak = self._noted(self._peak)
        compat.clear_workspaces()

    def _noted(self, peak: int) -> int:
        """Return the peak of the run that compiled: this one, or the one that filled the cache."""
        if not (folder := self._config.compilation_config.local_cache_dir):
            return peak
        note = Path(folder, "gmlake-peak")
        with suppress(FileNotFoundError):
            return max(peak, int(note.read_text(encoding="utf-8")))
        note.write_text(str(peak), encoding="utf-8")
        return peak

    def _settings(self) -> dict[str, Any]:
        config = self._config
        kinds = (
            (config.parallel_config, ("tensor_parallel_size", "pipeline_parallel_size")),
            (config.model_config, ("max_model_len", "quantization")),
            (config.scheduler_config, ("max_num_seqs", "max_num_batched_tokens")),
            (config.cache_config, ("gpu_memory_utilization", "cache_dtype", "block_size")),
        )
        return {
            "engine": f"vLLM {import_module('vllm').__version__}",
            "architecture": config.model_config.architectures[0],
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "ranks": self.world,
            "rank": self.rank,
            "settings": {name: getattr(of, name) for of, names in kinds for name in names},
        }

    def _memory(self) -> dict[str, Any]:
        """Return the parts that the engine tells apart, and what the process has in the end."""
        return self.memory() | {
            "weights_bytes": int(self._worker.model_runner.model_memory_usage),
            "activation_bytes": self._first_peak,
            "graphs_bytes": self._graphs_bytes,
        }

    def _cache(self, contexts: list[int], memory: dict[str, Any]) -> dict[str, Any]:
        """Return what the cache holds, and would hold, by the engine's own arithmetic."""
        model, own = self._config.model_config, self._config.cache_config.gpu_memory_utilization
        longest, total = int(model.max_model_len), memory["memory_bytes"]
        limit = longest
        with suppress(Exception):  # asked of what vLLM keeps to itself
            limit = max(limit, int(model.get_and_verify_max_len(None)))
        shares = {
            f"gpu_memory_utilization {each:g}": int((each - own) * total)
            for each in sorted({*SHARES, own})
        }
        shares["started again, compiled before"] = self._compiling_bytes
        shares["gmlake's fill: all that is left"] = max(total - memory["in_use_bytes"], 0)
        blocks, tokens, _ = self._capacity(0, longest)

        def is_too_small(mib: int) -> bool:
            return self._capacity((mib << 20) - self._available, longest)[0] == 0

        needed = last(is_too_small, _MOST_MIB) + 1
        return {
            "available_bytes": self._available,
            "compiling_bytes": self._compiling_bytes,
            "missing_bytes": max((needed << 20) - self._available, 0),
            "blocks": blocks,
            "tokens": tokens,
            "concurrency": [
                [each, self._capacity(0, each)[2]] for each in sorted({longest, *contexts})
            ],
            "longest": last(lambda context: self._capacity(0, context)[0] > 0, limit + 1),
            "longest_of_model": limit,
            "others": [
                [name, *self._capacity(more, longest), "computed"] for name, more in shares.items()
            ],
        }

    def _capacity(self, more: int, context: int) -> tuple[int, int, float]:
        """Return blocks, tokens and concurrent requests of a cache that is larger by so much."""
        model = self._config.model_config
        own, model.max_model_len = model.max_model_len, context
        try:
            (made,) = self._plan(self._config, self._specs, [self._available + more], *self._others)
            concurrency = float(self._concurrency_of(self._config, made))
        except ValueError:
            return 0, 0, 0.0
        finally:
            model.max_model_len = own
        return int(made.num_blocks), int(concurrency * context), concurrency


def _executor(engine: _Engine) -> Any:
    """Return the executor of one process, for the worker of the engine's rank."""
    module: Any = import_module("vllm.v1.executor.uniproc_executor")
    network: Any = import_module("vllm.utils.network_utils")

    class OneRank(module.UniProcExecutor):  # type: ignore[misc]
        def _distributed_args(self) -> tuple[str, int, int]:
            address = network.get_distributed_init_method("127.0.0.1", network.get_open_port())
            return address, engine.rank, engine.rank % torch.cuda.device_count()

        def _init_executor(self) -> None:
            super()._init_executor()
            engine.loaded(self.driver_worker.worker)

    return OneRank


def stand_alone(queues: Any, states: Any, rank: int, world: int) -> None:
    """Let one rank boot without the others. queues, states: modules that the engine talks by."""
    os.environ |= {"GMLAKE_FORECAST_RANKS": str(world), "RANK": str(rank)}
    ranks.install()
    queues.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
    states.in_the_same_node_as = lambda group, *_, **__: [True] * group.size()
