"""A server of SGLang's on the stand-in GPU: what is asked of it, and read, with a package like it.

The package below has the parts of SGLang 0.5.23 that a forecast takes hold of, by their names
there: where settings are resolved, where its processes would start, a scheduler that loads, sizes
its cache by what is free and captures graphs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin import forecasting

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
FILES = {
    "__init__": "__version__ = '0.5.23'",
    "launch_server": """
import sys
from gmlake.compat.sglang import register
from sglang.srt import runtime_context as context
from sglang.srt.entrypoints.engine import Engine
from sglang.srt.server_args import ServerArgs
register()
arguments = ServerArgs(*sys.argv[1:])
arguments.resolve_once()
context.published.tp_size = arguments.tp_size
Engine._launch_scheduler_processes(arguments, "ports", print)
""",
    "srt.server_args": """
class ServerArgs:
    load_format, skip_tokenizer_init, disable_custom_all_reduce = "auto", False, False
    tp_size, max_running_requests, kv_cache_dtype = 1, 64, "auto"

    def __init__(self, model_path, share, tp="1"):
        self.model_path, self.share, self.tp_size = model_path, float(share), int(tp)

    def resolve_once(self):
        if self.share > 1:
            raise ValueError("no such share.")
        self._resolution_finished = True
""",
    "srt.entrypoints.engine": """
class Engine:
    @classmethod
    def _launch_scheduler_processes(cls, arguments, ports, run):
        raise RuntimeError("its processes started")
""",
    "srt.runtime_context": """
from types import SimpleNamespace as Named
published = Named(tp_size=1, pp_size=1)
get_parallel = lambda: published
SpawnRanks = Named
def publish(arguments, *, role, ranks):
    assert role == "scheduler"
    published.__dict__.update(arguments=arguments, ranks=ranks)
""",
    "srt.distributed.parallel_state": "",
    "srt.distributed.device_communicators.shm_broadcast": "class MessageQueue: pass",
    "kernels.jit.utils.compile.loader": """
import pathlib
def _find_prebuilt(*, spec): return None
def _load(library): raise RuntimeError("nvcc is asked for")
def load_jit(spec): return _load(_find_prebuilt(spec=spec) or pathlib.Path("built"))
""",
    "srt.distributed.device_communicators.pynccl": "PyNcclCommunicator = dict",
    "srt.managers.tp_worker": """
from types import SimpleNamespace as Named
import torch
import torch.distributed as dist
from sglang.kernels.jit.utils.compile.loader import load_jit
from sglang.srt import runtime_context as context
from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator

def broadcast_pyobj(data, rank):
    return data if rank == 0 else []

class TpModelWorker:
    def __init__(self, arguments):
        rank = context.published.ranks.world_rank
        if arguments.tp_size > 1:
            assert PyNcclCommunicator(group="all") is None and arguments.disable_custom_all_reduce
            dist.init_process_group("gloo", rank=rank, world_size=arguments.tp_size)
            dist.monitored_barrier()
        self.seed = broadcast_pyobj([7], rank)[0]
        assert (arguments.load_format, arguments.skip_tokenizer_init) == ("dummy", True)
        free = torch.cuda.mem_get_info()[0] / (1 << 30)
        model = torch.nn.Linear(1 << 12, (1 << 12) // arguments.tp_size, False, device="cuda")
        load_jit("a kernel").norm(model.weight)
        config = Named(architectures=["LlamaForCausalLM"])
        self.model_runner = Named(
            model=model, dtype=torch.float32, pre_model_load_memory=free, page_size=4,
            mem_fraction_static=arguments.share, graph_memory_usage={},
            kv_cache_dtype_str=arguments.kv_cache_dtype,
            model_config=Named(context_len=1000, quantization=None, hf_config=config),
        )

    def alloc_memory_pool(self):
        runner = self.model_runner
        free = torch.cuda.mem_get_info()[0]
        rest = free - runner.pre_model_load_memory * (1 << 30) * (1 - runner.mem_fraction_static)
        if rest <= 0:
            raise ValueError("Loaded weights leave no GPU memory for the KV cache. Raise it.")
        runner.max_total_num_tokens = int(rest) // (1 << 16) // 4 * 4
        self.pool = torch.empty(runner.max_total_num_tokens << 16, dtype=torch.uint8, device="cuda")
""",
    "srt.managers.scheduler": """
import torch
from sglang.srt.managers.tp_worker import TpModelWorker

class Scheduler:
    def __init__(self, arguments, ports):
        assert ports == "ports"
        self.tp_worker = TpModelWorker(arguments)
        self.tp_worker.alloc_memory_pool()
        runner = self.tp_worker.model_runner
        runner.max_running_requests = arguments.max_running_requests
        runner.graph_memory_usage = {"prefill": 0.25, "decode": 0.25}
        torch.empty(96 << 20, dtype=torch.uint8, device="cuda")
""",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with SGLang's likeness, and a model without weights."""
    for name, text in FILES.items():
        path = tmp_path.joinpath("packages", "sglang", *name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    return tmp_path


def forecast(package: Path, *words: str, ours: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """Return the exit code of the forecast of this server, and what it printed."""
    server = ("--", "python", "-m", "sglang.launch_server", str(package), *words)
    variables = {"PYTHONPATH": str(package / "packages")}
    done = forecasting.run("forecast", "--on", "h100-80gb", *ours, *server, variables=variables)
    return done.returncode, done.stdout, done.stderr


def figures(package: Path, *words: str, ours: tuple[str, ...] = ()) -> dict[str, Any]:
    code, text, errors = forecast(package, *words, ours=("--json", *ours))
    assert code == 0, errors
    found: dict[str, Any] = json.loads(text)["figures"]
    return found


def test_the_scheduler_boots_without_weights_and_says_what_it_holds(package: Path) -> None:
    found = figures(package, "0.8", ours=("--context", "101"))
    assert (found["engine"], found["architecture"]) == ("SGLang 0.5.23", "LlamaForCausalLM")
    assert found["weights_bytes"] == 4 * (1 << 24)
    assert 0 <= found["available_bytes"] - (found["tokens"] << 16) < 2 * MIB  # as it is reserved
    assert found["blocks"] == found["tokens"] // 4
    assert found["activation_bytes"] == 96 * MIB
    assert found["graphs_bytes"] == 512 * MIB
    assert found["peak_bytes"] == 160 * MIB + found["available_bytes"] + found["cuda_bytes"]
    # A fifth of what is free is left beside the cache; CUDA's own is not free.
    free = found["memory_bytes"] - 527 * MIB
    assert 0 <= 0.8 * free - 64 * MIB - found["available_bytes"] < 256 * MIB
    assert found["concurrency"] == [[101, 64.0], [1000, 64.0]]  # no more than it runs at once
    assert (found["longest"], found["longest_of_model"]) == (1000, 1000)
    own, _, more, *_ = found["others"]
    assert own[:3] == ["mem_fraction_static 0.8", found["blocks"], found["tokens"]]
    assert more[2] - own[2] == pytest.approx(0.1 * found["memory_bytes"] / (1 << 16), abs=2)


def test_one_rank_of_two_boots_alone(package: Path) -> None:
    found = figures(package, "0.8", "2", ours=("--rank", "1"))
    assert (found["ranks"], found["rank"], found["weights_bytes"]) == (2, 1, 2 * (1 << 24))


@pytest.mark.long
def test_other_settings_are_tried(package: Path) -> None:
    found = figures(package, "0.8", "2", ours=("--rank", "1", "--vary"))
    varied = {row[0]: row for row in found["others"]}
    assert varied["tensor_parallel_size 1"][4] == "booted"
    assert varied["max_num_seqs 16"][3] == 16.0  # of max_running_requests
    assert "kv_cache_dtype fp8" in varied


def test_what_does_not_fit_says_what_is_missing(package: Path) -> None:
    code, said, errors = forecast(package, "0.0005")
    assert code == 1, errors
    assert "no cache for a request of 1,000 tokens" in said
    assert "are missing; it says: Loaded weights leave no GPU memory for the KV cache" in said


def test_settings_that_are_refused_are_told_in_one_line(package: Path) -> None:
    code, _, errors = forecast(package, "2")
    assert (code, errors.count("\n")) == (2, 1)
    assert "the engine did not boot: ValueError: no such share. --show-output" in errors
