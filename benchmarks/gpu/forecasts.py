r"""What each of the trainings in benchmarks/forecast/programs/ takes of the GPU.

    PYTHONPATH=benchmarks python -m gpu.forecasts [--only gpt2 t5] [--write]

Each program runs unchanged under PyTorch's own allocator, its expandable segments and gmlake, in a
forked child of its own that is alone on the device. A forecast is judged by these figures. What
torch.compile built is kept for the runs of one program, so that only its first is a cold one, which
`compiled_before` says: memory that is reserved differs.

On the stand-in there is no management library to ask, and the table lacks the driver's part.
"""

# PyTorch and torchvision may be absent where the types are checked.
# mypy: allow-untyped-calls
# mypy: disable-error-code="import-not-found, import-untyped, unused-ignore"

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import machine
from gpu import forked
from gpu.settings import ALLOCATORS

Answer = dict[str, Any]

MIB, GIB = 1 << 20, 1 << 30
_PROGRAMS = machine.ROOT / "benchmarks" / "forecast" / "programs"
_ALLOCATORS = ("default", "expandable", "gmlake")
_LONGEST_SECONDS = 200.0


def import_everything() -> None:
    """Import what the programs import, without initialising CUDA."""
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    import torchvision  # noqa: F401
    import transformers

    import gmlake  # noqa: F401

    for name in (
        *("AutoModelForCausalLM", "BertForMaskedLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM"),
        *("LlamaForCausalLM", "OPTForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"),
        *("Qwen3MoeForCausalLM", "T5ForConditionalGeneration"),
    ):
        getattr(transformers, name)  # they are loaded on first use
    if torch.cuda.is_initialized():
        raise SystemExit("an import initialised CUDA, so no child can use it")


class _Samples:
    """What the driver and PyTorch say after each step of an optimizer, in bytes."""

    def __init__(self, free_before: int | None) -> None:
        """`free_before`: what the driver had free before this process began."""
        self.free_before = free_before
        self.steps = 0
        self.in_use_peak = self.beyond_peak = 0

    def take(self) -> Answer:
        """Read now; return what is in use, and how much of it PyTorch has not reserved."""
        import torch

        torch.cuda.synchronize()  # what a kernel needs is taken when it is first launched
        reserved = torch.cuda.memory_reserved()
        told: Answer = {"reserved_end_bytes": reserved}
        if self.free_before is not None:
            in_use = self.free_before - torch.cuda.mem_get_info()[0]
            self.in_use_peak = max(self.in_use_peak, in_use)
            self.beyond_peak = max(self.beyond_peak, in_use - reserved)
            told |= {
                "in_use_end_bytes": in_use,
                "in_use_peak_bytes": self.in_use_peak,
                "beyond_reserved_end_bytes": in_use - reserved,
                "beyond_reserved_peak_bytes": self.beyond_peak,
            }
        return told

    def after_step(self, *_: Any) -> None:  # noqa: ANN401
        """Be the hook of every optimizer."""
        self.steps += 1
        self.take()


def measure(
    path: Path, arguments: list[str], allocator: str, cache: Path, free_before: int | None
) -> Answer:
    """Run a program in this process, as `python PATH ARGUMENTS` would; return what it took."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import gmlake

    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[allocator]
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    os.environ["TRITON_CACHE_DIR"] = str(cache / "triton")
    was_cached = any(cache.iterdir())
    samples = _Samples(free_before)
    register_optimizer_step_post_hook(samples.after_step)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    told: Answer = {}
    began = time.monotonic()
    with gmlake.enabled() if allocator == "gmlake" else nullcontext():
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if end.code:
                told["failed"] = f"SystemExit: {end.code}"
        except Exception as error:  # noqa: BLE001 (how far it came is of interest too)
            told["failed"] = forked.last_line(error)
        told["script_seconds"] = round(time.monotonic() - began, 2)
        if torch.cuda.is_initialized():
            told |= {
                "steps": samples.steps,
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                **samples.take(),
            }
    if any(cache.iterdir()):
        told["compiled_before"] = was_cached
    return told


class Results:
    """The figures so far, kept in a file after each run."""

    def __init__(self, path: Path | None, device: Answer) -> None:
        """`path`: where they are kept; None keeps nothing."""
        self.path, self.device = path, device
        self.programs: dict[str, dict[str, Answer]] = {}

    def add(self, name: str, allocator: str, told: Answer) -> None:
        """Keep a run; a kill while this is written leaves the file of before."""
        self.programs.setdefault(name, {})[allocator] = told
        if self.path is None:
            return
        figures = {
            "versions": forked.versions(),
            "device": self.device,
            "programs": self.programs,
        }
        partly = self.path.with_suffix(".part")
        machine.write("", figures, path=partly, gpu=self.device["device"])
        partly.replace(self.path)


def _gib(told: Answer, key: str) -> str:
    return f"{told[key] / GIB:.3f}" if key in told else "-"


def row(name: str, allocator: str, told: Answer) -> tuple[str, ...]:
    """Return what one run is called and took; sizes in GiB, what is beyond PyTorch's in MiB."""
    beyond = told.get("beyond_reserved_end_bytes")
    return (
        name,
        allocator,
        _gib(told, "peak_allocated_bytes"),
        _gib(told, "peak_reserved_bytes"),
        _gib(told, "in_use_peak_bytes"),
        "-" if beyond is None else f"{beyond / MIB:.1f}",
        f"{told['seconds']:.1f}",
        told.get("failed", ""),
    )


def show(results: Results) -> None:
    """Print one row for each run."""
    columns = ("program", "allocator", "allocated", "reserved", "in use", "beyond MiB", "s", "")
    table = Table(*columns, title=f"peaks in GiB on {results.device['device']}")
    for name, runs in sorted(results.programs.items()):
        for allocator, told in runs.items():
            table.add_row(*row(name, allocator, told))
    Console().print(table)


def names() -> list[str]:
    """Return the names of all programs."""
    return sorted(path.stem for path in _PROGRAMS.glob("*.py"))


def run(options: argparse.Namespace, results: Results, watch: forked.Watch) -> bool:
    """Run what is wanted, until the time is over; return whether all ended well."""
    end = time.monotonic() + options.stop_after
    is_well = True
    for name in options.only or names():
        with tempfile.TemporaryDirectory(prefix="gmlake-forecasts-") as caches:
            for allocator in options.allocators:
                if time.monotonic() > end:
                    print(f"{options.stop_after:g} s are over", flush=True)
                    return False
                path = _PROGRAMS / f"{name}.py"
                free = watch.settled_bytes()
                work = partial(measure, path, [], allocator, Path(caches), free)
                told = forked.in_child(work, _LONGEST_SECONDS)
                is_well = is_well and "failed" not in told
                results.add(name, allocator, told)
                words = row(name, allocator, told)
                widths = (26, 10, 8, 8, 8, 8, 6, 0)
                line = " ".join(
                    f"{word:{width}}" for word, width in zip(words, widths, strict=True)
                )
                print(line.rstrip(), flush=True)
    return is_well


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where a run failed or none was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", choices=names(), help="these programs only")
    add("--allocators", nargs="+", choices=_ALLOCATORS, default=list(_ALLOCATORS))
    add("--stop-after", type=float, default=float("inf"), help="seconds; later no run begins")
    add("--output", type=Path, help="file for the figures, as JSON")
    add("--write", action="store_true", help="keep them as results/forecast_programs_GPU.json")
    options = parser.parse_args()
    import_everything()
    device = forked.probe(_LONGEST_SECONDS)
    watch = forked.Watch()
    watch.is_over_by = device["management_minus_driver_bytes"]
    path = options.output
    if options.write and path is None:
        path = machine.RESULTS / f"forecast_programs_{forked.slug(device['device'])}.json"
    results = Results(path, device)
    is_well = run(options, results, watch)
    show(results)
    if path is not None:
        print(path)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
