"""The examples of the how-tos under each allocator, at a size that fills a part of a GPU.

    PYTHONPATH=benchmarks python -m gpu.howtos [--examples serving,lora] [--write]

First each example runs as its page says, under gmlake. Then each runs in a process of its own for
each allocator: once to warm up, then in rounds whose time is taken. Its sizes are those of SIZES,
its recordings and pages are left out. FSDP2 has one device. The process of the next run imports
while the last one has the device.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, attr-defined, unused-ignore"

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import environment
from gpu.workers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

GIB = 1 << 30
_EXAMPLES = machine.ROOT / "examples" / "howto"
_ALLOCATORS = ("default", "expandable", "gmlake")
_LONGEST_SECONDS = 500
_AT_ONCE = 4

_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
}
SIZES: dict[str, dict[str, Any]] = {
    "plain_loop": {"WIDTH": 2048, "BATCH": 16, "LENGTH": 512},
    "hf_trainer": {"CONFIG": _LLAMA, "LENGTH": 1024},
    "lightning_fit": {"WIDTH": 4096, "BATCH": 1024},
    "accelerate_loop": {"WIDTH": 4096, "BATCH": 1024},
    "fsdp2": {"WIDTH": 2048, "BATCH": 16, "LENGTH": 512},
    "compiled": {"WIDTH": 4096, "BATCH": 4096},
    "serving": {"CONFIG": _LLAMA},
    "rl_loop": {"CONFIG": _LLAMA},
    "lora": {"CONFIG": _LLAMA},
}
"""What of an example is made larger, by the names there."""


# ---- one example, in the process of one allocator ------------------------------------------------


class _Nothing:
    """A recording that is none."""

    def save(self, _: str) -> None:
        """Write nothing."""

    @property
    def snapshot(self) -> _Nothing:
        return self


@contextmanager
def _no_recording() -> Iterator[_Nothing]:
    yield _Nothing()


def load(name: str, allocator: str, *, is_tiny: bool) -> ModuleType:
    """Import an example with its sizes, and without what only shows memory."""
    import gmlake

    spec = importlib.util.spec_from_file_location(name, _EXAMPLES / f"{name}.py")
    assert spec is not None  # noqa: S101 (for the types: the file is there)
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for attribute, value in {} if is_tiny else SIZES[name].items():
        if attribute == "CONFIG":
            from transformers import LlamaConfig

            value = LlamaConfig(**value)  # noqa: PLW2901
        setattr(module, attribute, value)
    for shower in ("GmlakeCallback", "GmlakeTraining"):
        if hasattr(module, shower):
            shown = getattr(module, shower)
            setattr(module, shower, lambda *given, shown=shown, page: shown(*given))  # noqa: ARG005
    gmlake.record = _no_recording  # type: ignore[assignment]
    if allocator != "gmlake":
        gmlake.enable = lambda: None  # type: ignore[assignment, return-value, misc]
    return module


def measure(name: str, allocator: str, rounds: int, turn: str, *, is_tiny: bool) -> dict[str, Any]:
    """Run an example some times, when it has the device; return its peaks and times."""
    import torch

    import gmlake

    module = load(name, allocator, is_tiny=is_tiny)
    seconds = []
    with Path(turn).open("w") as lock, redirect_stdout(sys.stderr):
        fcntl.flock(lock, fcntl.LOCK_EX)
        with gmlake.enabled() if allocator == "gmlake" else nullcontext():
            for _ in range(1 + rounds):
                torch.manual_seed(0)
                began = time.perf_counter()
                module.main()
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - began)
            return {
                "seconds": seconds[1:],
                "first_seconds": seconds[0],
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
            }


# ---- all of them ---------------------------------------------------------------------------------


def _alone() -> dict[str, str]:
    """Return what torchrun would set for the only process there is."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return dict(zip(names, ("0", "0", "1", "127.0.0.1", str(free_port())), strict=True))


def _finish(command: list[str], variables: dict[str, str], folder: str) -> tuple[int, str, str]:
    try:
        done = subprocess.run(  # noqa: S603
            command,
            env=variables,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"took longer than {_LONGEST_SECONDS} s"
    return done.returncode, done.stdout, done.stderr


def as_told(name: str, folder: str) -> dict[str, Any]:
    """Run an example as its page says, on one device; return how it ended."""
    example = str(_EXAMPLES / f"{name}.py")
    command = [sys.executable, "-m", "gmlake", "run", "--report"]
    if name == "plain_loop":
        command = [sys.executable]
    if name == "fsdp2":
        command += ["-m", "torch.distributed.run", "--nproc-per-node", "1"]
    code, output, errors = _finish([*command, example], environment("gmlake"), folder)
    told: dict[str, Any] = {"exit_code": code}
    print(f"{name} as its page says: {code}", flush=True)
    if code:
        told["failed"] = (errors.strip() or output.strip() or "no message").splitlines()[-1]
    return told


def ask(name: str, allocator: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    command = [sys.executable, "-m", "gpu.howtos", "--one", name, "--allocator", allocator]
    command += ["--rounds", str(options.rounds), "--size", options.size, "--turn", options.turn]
    variables = environment(allocator) | {"TORCHINDUCTOR_CACHE_DIR": options.cache}
    variables |= _alone() if name == "fsdp2" else {}
    with tempfile.TemporaryDirectory() as folder:
        code, output, errors = _finish(command, variables, folder)
    if code:
        return {"failed": (errors.strip() or "no message").splitlines()[-1]}
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def show(figures: dict[str, Any]) -> None:
    """Print one row for each example and allocator."""
    table = Table("example", "allocator", "live GiB", "reserved GiB", "seconds", "spread")
    for name, by_allocator in figures["examples"].items():
        for allocator, told in by_allocator.items():
            if "failed" in told:
                table.add_row(name, allocator, told["failed"])
                continue
            times = told["seconds"]
            table.add_row(
                name,
                allocator,
                f"{told['peak_allocated_bytes'] / GIB:.2f}",
                f"{told['peak_reserved_bytes'] / GIB:.2f}",
                f"{statistics.median(times):.3f}",
                f"{min(times):.3f} to {max(times):.3f}",
            )
    console = Console(width=120)
    console.print(table)
    console.print({name: told.get("failed", "ran") for name, told in figures["as_told"].items()})


def outcomes(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each run for a figure told."""
    return [told for by_allocator in figures["examples"].values() for told in by_allocator.values()]


def keep(figures: dict[str, Any], options: argparse.Namespace) -> None:
    """Write what there is so far."""
    devices = {told["device"] for told in outcomes(figures) if "device" in told}
    figures["torch"] = sorted({told["torch"] for told in outcomes(figures) if "torch" in told})
    if options.write or options.output:
        gpu = ", ".join(sorted(devices)) or "none"
        machine.write("gpu_howtos", figures, path=options.output, gpu=gpu)


def main() -> int:
    """Run, print, and keep it with --write or --output; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--examples", default=",".join(SIZES), help="a,b: these (%(default)s)")
    parser.add_argument("--allocators", default=",".join(_ALLOCATORS), help="a,b (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="whose time is taken (3)")
    parser.add_argument("--size", choices=("full", "tiny"), default="full", help="tiny: as it is")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_howtos.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--one", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--allocator", choices=_ALLOCATORS, help=argparse.SUPPRESS)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        is_tiny = options.size == "tiny"
        told = measure(
            options.one, options.allocator, options.rounds, options.turn, is_tiny=is_tiny
        )
        print(json.dumps(told))
        return 0
    examples, allocators = options.examples.split(","), options.allocators.split(",")
    figures: dict[str, Any] = {"size": options.size, "as_told": {}, "examples": {}}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        options.turn, options.cache = f"{folder}/turn", f"{folder}/cache"
        folders = [f"{folder}/{name}" for name in examples]
        for each in folders:
            Path(each).mkdir()
        figures["as_told"] = dict(zip(examples, pool.map(as_told, examples, folders), strict=True))
        runs = [(name, allocator) for name in examples for allocator in allocators]
        for (name, allocator), told in zip(
            runs, pool.map(lambda run: ask(run[0], run[1], options), runs), strict=True
        ):
            seconds = [round(each, 3) for each in told.get("seconds", [])]
            print(f"{name} {allocator}: {told.get('failed', seconds)}", flush=True)
            figures["examples"].setdefault(name, {})[allocator] = told
            keep(figures, options)
    show(figures)
    found = outcomes(figures)
    return int(any("failed" in told for told in [*found, *figures["as_told"].values()]))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
