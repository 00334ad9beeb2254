"""Run a program whose steps never repeat under one allocator, and tell what its memory did.

    PYTHONPATH=benchmarks python -m gpu.varying llama-1b --allocator gmlake --steps 60
    PYTHONPATH=benchmarks python -m gpu.varying llama-1b --record llama-1b.gmtrace

Prints one JSON object. Allocators can be chosen once in a process, so that each run has its own;
gpu.against starts them. Each step ends when its loss has come to the host.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

# Memory history and snapshots have private names only.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gmlake
from gmlake.pytorch import Session
from gmlake.trace import Kind, Trace
from gpu.settings import ALLOCATORS, PROGRAMS, STEPS, STEPS_OF
from machine import end_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu.programs import Program

REFUSED = 3
"""The exit status where memory has ended."""
_MOST_EVENTS = 100_000_000
_SHORT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "CUDA calloc")


@dataclass
class Seen:
    """What was seen of a run, one entry for each step.

    driver_calls, driver_ns: of gmlake, since the beginning. events: allocations and frees since
    the beginning.
    """

    losses: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    driver_calls: list[int] = field(default_factory=list)
    driver_ns: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)

    def step(self, program: Program, index: int, lake: Session | None) -> None:
        """Take a step."""
        began = time.perf_counter()
        loss = float(program.step(index))  # waits for the device
        self.seconds.append(time.perf_counter() - began)
        self.losses.append(loss.hex())
        if lake is not None:
            stats = lake.stats()
            self.driver_calls.append(sum(stats["driver_calls"].values()))
            self.driver_ns.append(stats["driver_time_ns"])


def used_past_allocator() -> int:
    """Return the bytes of the device that are used and not PyTorch's: the context, kernels."""
    import torch

    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return int(total_bytes - free_bytes - torch.cuda.memory_reserved())


@contextmanager
def region(options: argparse.Namespace) -> Iterator[Session | None]:
    """Serve the whole run, in a region that can sleep where a setting `region` names one."""
    if options.allocator != "gmlake":
        yield None
        return
    settings: dict[str, Any] = dict(text.split("=", 1) for text in options.knobs)
    name = settings.pop("region", None)
    inside = gmlake.region(name, everywhere=True) if name else nullcontext()
    with gmlake.enabled(**settings) as lake, inside:
        yield None if name else lake


def leave_only(left_bytes: int) -> None:
    """Take so much of the device, past every allocator, that only `left_bytes` are free."""
    import torch

    torch.empty(1, device="cuda")  # now PyTorch's context exists and is this thread's
    free_bytes, _ = torch.cuda.mem_get_info()
    cuda, ballast = ctypes.CDLL("libcuda.so.1"), ctypes.c_ulonglong()
    taken_bytes = free_bytes - left_bytes
    result = cuda.cuMemAlloc_v2(ctypes.byref(ballast), ctypes.c_size_t(taken_bytes))
    if result:
        sys.exit(f"gpu.varying: cuMemAlloc of {taken_bytes} bytes answered {result}")


def begin(options: argparse.Namespace) -> int:
    """Choose the device and how to compute; return the bytes used of it before anything is made."""
    import torch

    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    torch.use_deterministic_algorithms(True)  # noqa: FBT003 (its own signature)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 (it plans each length anew)
    torch.cuda.init()
    if options.record:
        torch.cuda.memory._record_memory_history(
            enabled="all", context=None, stacks="python", max_entries=_MOST_EVENTS
        )
    else:
        torch.empty(1, device="cuda")
    context_bytes = used_past_allocator()
    if 0 < options.limit < torch.cuda.mem_get_info()[0]:
        leave_only(options.limit)
    if options.program == "fsdp2":
        join_processes(options.backend)
    return context_bytes


def join_processes(backend: str) -> None:
    """Find the other processes, as torchrun tells where; "fake": one acts as if it were two."""
    from torch import distributed

    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    else:
        distributed.init_process_group(backend)


def is_short_of_memory(error: RuntimeError) -> bool:
    """Whether an error of PyTorch, or of a library it calls, says that memory ran out."""
    return any(words in str(error) for words in _SHORT_OF_MEMORY)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run it all and tell, sizes in bytes; `failed_step`: 0 while it was built, else from 1."""
    import torch

    from gpu.programs import build

    with region(options) as lake:
        seen, told = Seen(), dict[str, Any]()
        context_bytes = begin(options)
        is_built = False
        try:
            program = build(options.program, options.size, options.steps)
            is_built = True
            for index in range(options.steps):
                seen.step(program, index, lake)
                if options.record:
                    stats = torch.cuda.memory_stats()
                    counts = (stats[f"allocation.all.{what}"] for what in ("allocated", "freed"))
                    seen.events.append(sum(counts))
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not is_short_of_memory(error):
                raise
            told["failed_step"] = len(seen.seconds) + is_built
            told["message"] = str(error).splitlines()[0]
        if options.record and "failed_step" not in told:
            told["recording"] = record(options.record, seen)
        told = {
            "program": options.program,
            "allocator": options.allocator,
            "knobs": options.knobs,
            "has_finished": "failed_step" not in told,
            **told,
            **figures(seen),
            "limit_bytes": options.limit,
            "context_bytes": context_bytes,
            "used_past_allocator_bytes": used_past_allocator() if not options.limit else None,
            "rank": int(os.environ.get("RANK", "0")),
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        }
        if lake is not None:
            told["gmlake"] = {
                **lake.stats(),
                "driver_calls_by_step": seen.driver_calls,
                "driver_ns_by_step": seen.driver_ns,
            }
        return told


def figures(seen: Seen) -> dict[str, Any]:
    """Return times and sizes; the first third of the steps fills caches and makes the layout."""
    import torch

    late = sorted(seen.seconds[len(seen.seconds) // 3 :])
    stats = torch.cuda.memory_stats()
    peaks = {
        f"peak_{name}_bytes": stats.get(f"{name}_bytes.all.peak", 0)
        for name in ("requested", "allocated", "reserved")
    }
    return {
        **peaks,
        "utilization": round(peaks["peak_allocated_bytes"] / peaks["peak_reserved_bytes"], 4),
        "ooms": stats.get("num_ooms", 0),
        "retries": stats.get("num_alloc_retries", 0),
        "late_step_seconds": round(late[len(late) // 2], 6) if late else None,
        "seconds": [round(value, 6) for value in seen.seconds],
        "losses": seen.losses,
    }


def record(path: Path, seen: Seen) -> dict[str, int]:
    """Keep what was asked of memory so far, with a mark at the end of each step.

    Addresses, times and segments are left out.
    """
    import torch

    seen_now = gmlake.load(torch.cuda.memory._snapshot())
    trace = seen_now[torch.cuda.current_device()].trace
    requests = trace.requests[np.isin(trace.requests["kind"], (Kind.ALLOC, Kind.FREE))].copy()
    requests["address"] = requests["time_ns"] = 0
    if len(trace.start_blocks):
        sys.exit("gpu.varying: memory was live before the recording began")
    marks = np.zeros(len(seen.events), requests.dtype)
    marks["kind"] = Kind.MARK
    marks["id"] = np.arange(len(marks))
    kept = Trace(
        requests=np.insert(requests, seen.events, marks),
        labels=tuple(f"step {number + 1}" for number in range(len(marks))),
        settings=trace.settings,
    )
    kept.save(path)
    return {
        "events": len(kept.requests),
        "peak_live_bytes": kept.peak_live_bytes,
        "file_bytes": path.stat().st_size,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="default")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="knobs",
        help="a setting of gmlake, as chunk_size=16MiB; may be repeated",
    )
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--steps", type=int, help=f"{STEPS} unless the program takes others")
    parser.add_argument(
        "--limit", type=int, default=0, help="bytes of the device to leave free; 0: all of them"
    )
    parser.add_argument("--backend", default="nccl", help="of fsdp2: nccl, gloo, fake")
    parser.add_argument("--record", type=Path, help="file for what was asked of memory")
    options = parser.parse_args()
    if any("=" not in text for text in options.knobs):
        parser.error("--set takes NAME=VALUE")
    options.steps = options.steps or STEPS_OF.get(options.program, STEPS)
    setting = ALLOCATORS[options.allocator]
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        os.environ.pop(name, None)
    if setting:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = setting
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    os.environ["HF_HUB_OFFLINE"] = "1"
    told = run(options)
    print(json.dumps(told), flush=True)
    end_process(0 if told["has_finished"] else REFUSED)  # other ranks still wait for this one


if __name__ == "__main__":
    main()
