"""What each of the trainings in benchmarks/forecast/programs/ takes of the GPU.

    PYTHONPATH=benchmarks python -m gpu.forecasts [--only gpt2 t5] [--write]

Each program runs unchanged under PyTorch's own allocator, its expandable segments and gmlake, in a
process of its own. A forecast is judged by these figures. What torch.compile built is kept for the
runs of one program, so that only its first is a cold one, which `compiled_before` says: memory that
is reserved differs.

This process has a context of its own from the beginning, which tells what is free before another
one begins; no others may use the device.
"""

# PyTorch may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import sys
import tempfile
import time
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import machine
from forecast.names import named
from gpu.settings import ALLOCATORS

Answer = dict[str, Any]

MIB, GIB = 1 << 20, 1 << 30
_ALLOCATORS = ("default", "expandable", "gmlake")
_LONGEST_SECONDS = 200.0
_SETTLED_SECONDS = 5.0
_PACKAGES = ("torch", "torchvision", "transformers", "triton", "nvidia-cudnn-cu13")


# ---- in the process of a program -----------------------------------------------------------------


class _Samples:
    """What the driver and PyTorch say after each step of an optimizer, in bytes."""

    def __init__(self, free_before: int) -> None:
        """`free_before`: what the driver had free before this process began."""
        self.free_before = free_before
        self.steps = 0
        self.in_use_peak = self.beyond_peak = 0

    def take(self) -> Answer:
        """Read now; return what is in use, and how much of it PyTorch has not reserved."""
        import torch

        torch.cuda.synchronize()  # what a kernel needs is taken when it is first launched
        reserved = torch.cuda.memory_reserved()
        in_use = self.free_before - torch.cuda.mem_get_info()[0]
        self.in_use_peak = max(self.in_use_peak, in_use)
        self.beyond_peak = max(self.beyond_peak, in_use - reserved)
        return {
            "reserved_end_bytes": reserved,
            "in_use_end_bytes": in_use,
            "in_use_peak_bytes": self.in_use_peak,
            "beyond_reserved_end_bytes": in_use - reserved,
            "beyond_reserved_peak_bytes": self.beyond_peak,
        }

    def after_step(self, *_: Any) -> None:  # noqa: ANN401
        """Be the hook of every optimizer."""
        self.steps += 1
        self.take()


def measure(words: list[str], allocator: str, free_before: int) -> Answer:
    """Run a program in this process, as `python WORDS` would; return what it took."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import gmlake

    samples = _Samples(free_before)
    register_optimizer_step_post_hook(samples.after_step)
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    told: Answer = {}
    began = time.monotonic()
    with gmlake.enabled() if allocator == "gmlake" else nullcontext():
        try:
            runpy.run_path(words[0], run_name="__main__")
        except Exception as error:  # noqa: BLE001 (how far it came is of interest too)
            told["failed"] = f"{type(error).__name__}: {error}".splitlines()[0]
        told["script_seconds"] = round(time.monotonic() - began, 2)
        if torch.cuda.is_initialized():
            told |= {
                "steps": samples.steps,
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                **samples.take(),
            }
    return told


# ---- who starts them -----------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Return the versions of what is installed of the packages that measurements depend on."""
    told = {}
    for name in _PACKAGES:
        try:
            told[name] = version(name)
        except PackageNotFoundError:
            continue
    return told


class Watch:
    """What the device has free, told by a context that does nothing else."""

    def __init__(self) -> None:
        """Make the context."""
        import torch

        torch.empty(1, device="cuda")
        self.most_free = torch.cuda.mem_get_info()[0]

    def settled_bytes(self) -> int:
        """Return what is free when the last process's memory has come back, or after 5 seconds."""
        import torch

        end = time.monotonic() + _SETTLED_SECONDS
        while (free := int(torch.cuda.mem_get_info()[0])) + MIB < self.most_free:
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        self.most_free = max(self.most_free, free)
        return free


def ask(name: str, allocator: str, cache: Path, watch: Watch) -> Answer:
    """Return what a program took in a process of its own, or `failed`."""
    variables = {
        "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator],
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }
    was_cached = any(cache.iterdir())
    began = time.monotonic()
    command = [sys.executable, "-m", "gpu.forecasts", "--only", name, "--allocators", allocator]
    told = machine.told_by(
        [*command, "--free", str(watch.settled_bytes())],
        env=os.environ | variables,
        seconds=_LONGEST_SECONDS,
    )
    if any(cache.iterdir()):
        told["compiled_before"] = was_cached
    return told | {"seconds": round(time.monotonic() - began, 2)}


def row(name: str, allocator: str, told: Answer) -> Answer:
    """Return what one run is called and took, in GiB and seconds, or why it failed."""
    sizes = ("peak_allocated", "peak_reserved", "in_use_peak", "beyond_reserved_end")
    cells = {size: told[f"{size}_bytes"] / GIB for size in sizes if f"{size}_bytes" in told}
    named_ = {"program": name, "allocator": allocator}
    return {**named_, **cells, "s": told["seconds"], "failed": told.get("failed", "")}


def run(options: argparse.Namespace, device: Answer, path: Path | None) -> dict[str, Any]:
    """Run what is wanted until the time is over, and keep it after each run; return all of it."""
    end = time.monotonic() + options.stop_after
    watch, programs = Watch(), dict[str, dict[str, Answer]]()
    for name in options.only or sorted(named()):
        with tempfile.TemporaryDirectory(prefix="gmlake-forecasts-") as caches:
            for allocator in options.allocators:
                if time.monotonic() > end:
                    print(f"{options.stop_after:g} s are over", flush=True)
                    return programs
                told = ask(name, allocator, Path(caches), watch)
                programs.setdefault(name, {})[allocator] = told
                print(*row(name, allocator, told).values(), flush=True)
                if path is not None:
                    figures = {"versions": versions(), "device": device, "programs": programs}
                    machine.write("", figures, path=path, gpu=device["device"])
    return programs


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where a run failed or none was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", choices=sorted(named()), help="these programs only")
    add("--allocators", nargs="+", choices=_ALLOCATORS, default=list(_ALLOCATORS))
    add("--stop-after", type=float, default=float("inf"), help="seconds; later no run begins")
    add("--output", type=Path, help="file for the figures, as JSON")
    add("--write", action="store_true", help="keep them as results/forecast_programs_GPU.json")
    add("--free", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.free is not None:
        told = measure(named()[options.only[0]], options.allocators[0], options.free)
        print(json.dumps(told), flush=True)
        return 0
    device, driver = machine.gpu_and_driver()
    path = options.output
    if options.write and path is None:
        found = re.search(r"\b[A-Z]+\d+\w*\b", device)
        slug = (found[0] if found else device.replace(" ", "_")).lower()
        path = machine.RESULTS / f"forecast_programs_{slug}.json"
    programs = run(options, {"device": device, "driver": driver}, path)
    rows = [row(name, *run_) for name, runs in programs.items() for run_ in runs.items()]
    machine.show(f"peaks in GiB on {device}", rows)
    return int(not rows or any(told["failed"] for told in rows))


if __name__ == "__main__":
    sys.exit(main())
