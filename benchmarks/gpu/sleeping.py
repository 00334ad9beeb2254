"""A 7B model that sleeps to the CPU and wakes, beside plain page-locked copies of as many bytes.

    PYTHONPATH=benchmarks python -m gpu.sleeping [--write] [--ways gmlake,torch_memory_saver]

Each way has a process of its own: `gmlake`, its compatible API `compat`, `torch_memory_saver`
where that package is installed, `torch_memory_saver_retained`, which keeps its host memory from one
sleep to the next. The first sleep of a process takes host memory, which costs more where nobody has
used that memory since the machine started: so one process takes and returns as much before the
others begin. vLLM's own sleep mode is measured by gpu.engines.

Before and after sleeping a forward pass gives logits that must be equal to the bit. `copies` is the
time of one copy of the same bytes between a page-locked buffer and the device. What stays is
compared with the same process before it made the model, when it had imported everything, made a
context and computed once.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls
# mypy: disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

_SAVER = "torch_memory_saver"
_RETAINED = f"{_SAVER}_retained"
_WAYS = ("gmlake", "compat", _SAVER, _RETAINED)
_TOUCH = "touch"
_SIZES: dict[str, dict[str, int]] = {
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 500,
    },
}


def begin(way: str) -> tuple[AbstractContextManager[Any], Callable[[], Any], Callable[[], Any]]:
    """Return the region for weights, and what sends it to sleep and wakes it."""
    import gmlake

    if way == "gmlake":
        gmlake.enable()
        return (
            gmlake.region("weights", backup="cpu"),
            lambda: gmlake.sleep("weights"),
            lambda: gmlake.wake("weights"),
        )
    saver: Any = import_module(
        "gmlake.compat.torch_memory_saver" if way == "compat" else _SAVER
    ).torch_memory_saver
    if way == _RETAINED:
        saver.retain_cpu_backup = True
    return (
        saver.region(tag="weights", enable_cpu_backup=True),
        lambda: saver.pause("weights"),
        lambda: saver.resume("weights"),
    )


def compute(model: torch.nn.Module) -> torch.Tensor:
    """Return the logits of a fixed text."""
    import torch

    tokens = torch.arange(64, device="cuda").reshape(1, 64)
    with torch.no_grad():
        logits: torch.Tensor = model(tokens, use_cache=False).logits.cpu()
    return logits


def time_copies(size_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of copies of that many bytes, out of a device and into it."""
    import torch

    host = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {"out": [], "in": []}
    for _ in range(rounds + 1):
        for way, (to, source) in (("out", (host, device)), ("in", (device, host))):
            torch.cuda.synchronize()
            began = time.perf_counter()
            to.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            times[way].append(time.perf_counter() - began)
    return {way: taken[1:] for way, taken in times.items()}


def measure(way: str, size: str, rounds: int) -> dict[str, Any]:
    """Let a model sleep and wake some times; return seconds and bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.cuda.init()
    region, sleep, wake = begin(way)
    small = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
    (small @ small).sum().item()
    del small
    torch.cuda.empty_cache()
    empty = machine.used_bytes()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with region, torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**_SIZES[size])).eval()
    weight_bytes = sum(each.numel() * each.element_size() for each in model.parameters())
    expected = compute(model)
    torch.cuda.empty_cache()
    awake = machine.used_bytes()
    told: dict[str, Any] = {"sleep_seconds": [], "wake_seconds": [], "asleep_bytes": []}
    same = True
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        sleep()
        slept = time.perf_counter()
        told["asleep_bytes"].append(machine.used_bytes())
        again = time.perf_counter()
        wake()
        torch.cuda.synchronize()
        told["wake_seconds"].append(time.perf_counter() - again)
        told["sleep_seconds"].append(slept - began)
        same = same and bool(torch.equal(compute(model), expected))
        torch.cuda.empty_cache()
    if way == _RETAINED:
        check_retained(model)
    told["first_sleep_seconds"] = told["sleep_seconds"].pop(0)
    told["first_wake_seconds"] = told["wake_seconds"].pop(0)
    return {
        **told,
        "weight_bytes": weight_bytes,
        "empty_bytes": empty,
        "awake_bytes": awake,
        "stays_bytes": max(told["asleep_bytes"]) - empty,
        "has_same_logits": same,
        "copies": time_copies(weight_bytes, rounds),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def check_retained(model: torch.nn.Module) -> None:
    """End the process where torch_memory_saver has no backup of an awake model."""
    small = min(model.parameters(), key=lambda each: each.numel())
    if import_module(_SAVER).torch_memory_saver.get_cpu_backup(small) is None:
        sys.exit(f"{_SAVER} did not retain its backup")


def touch_host(size: str) -> None:
    """Take and return as much page-locked memory as a model of that size sleeps in."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**_SIZES[size]))
    many = sum(each.numel() for each in model.parameters())
    torch.empty(many, dtype=torch.bfloat16, pin_memory=True)


def prepared(way: str) -> AbstractContextManager[Any]:
    """Return what a process of that way is started in: torch_memory_saver is preloaded."""
    if way not in (_SAVER, _RETAINED):
        return contextlib.nullcontext()
    try:
        started: AbstractContextManager[Any] = import_module(_SAVER).configure_subprocess()
    except ImportError:
        return contextlib.nullcontext()  # the process will say so
    return started


def ask(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    command = [sys.executable, "-m", "gpu.sleeping", "--one", way, "--rounds", str(options.rounds)]
    with prepared(way):
        return machine.told_by([*command, "--size", options.size], env=os.environ)


def show(figures: dict[str, Any]) -> None:
    """Print a row for each way, with medians."""
    rows = []
    for way, told in figures["ways"].items():
        times = {f"{what} s": told.get(f"{what}_seconds", []) for what in ("sleep", "wake")}
        times |= {f"copy {what} s": taken for what, taken in told.get("copies", {}).items()}
        names = ("first_sleep_seconds", "stays_bytes", "has_same_logits", "failed")
        kept = {name: told[name] for name in names if name in told}
        medians = {name: statistics.median(each) for name, each in times.items() if each}
        rows.append({"way": way, **medians, **kept})
    machine.show(figures["size"], rows)


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ways", default=",".join(_WAYS), help="a,b of these (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="after one to warm up (3)")
    parser.add_argument("--size", choices=_SIZES, default="7b")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_sleeping.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=(*_WAYS, _TOUCH), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one == _TOUCH:
        touch_host(options.size)
        return 0
    if options.one:
        print(json.dumps(measure(options.one, options.size, options.rounds)))
        return 0
    figures: dict[str, Any] = {"size": options.size, "ways": {}}
    if failed := ask(_TOUCH, options).get("failed"):
        print(f"host memory was not touched: {failed}", file=sys.stderr)
    for way in options.ways.split(","):
        figures["ways"][way] = ask(way, options)
        if options.write or options.output:  # what was measured is kept if a later way hangs
            gpu = machine.devices_of(figures["ways"].values())
            machine.write("gpu_sleeping", figures, path=options.output, gpu=gpu)
    show(figures)
    ran = [told for told in figures["ways"].values() if "failed" not in told]
    return int(len(ran) < len(figures["ways"]) or not all(t["has_same_logits"] for t in ran))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
