"""Trainings of thousands of steps: are losses those of PyTorch's allocator, and is memory flat?

    PYTHONPATH=benchmarks python -m gpu.long [--write]

Two trainings, each in a process of its own for each allocator:

- varying: a small transformer; batch and length of each step are drawn, so that no two are alike.
- turns: two of them in turn on two streams, one of them in a region that under gmlake sleeps and
  wakes every hundred steps; a captured graph is replayed in each step.

The losses of all steps are compared bit for bit. Reserved memory and the host memory of the process
are noted every fiftieth part of the steps, and what they rise by after the first tenth is told.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

MIB = 1 << 20
ALLOCATORS = ("default", "expandable", "gmlake")
STEPS = {"varying": 10_000, "turns": 1_000}
_TINY = {"varying": 60, "turns": 40}
_LOOKS = 50
_SLEEP_EVERY = 100
_WORDS = 4096


def _model(width: int, layers: int) -> nn.Module:
    from torch import nn

    layer = nn.TransformerEncoderLayer(
        width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True, device="cuda"
    )
    return nn.Sequential(
        nn.Embedding(_WORDS, width, device="cuda"),
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        nn.Linear(width, _WORDS, device="cuda"),
    )


class _Training:
    """A model, its optimizer, and steps whose sizes are drawn by their number."""

    def __init__(self, seed: int, *, width: int, layers: int, tokens: int) -> None:
        import torch

        torch.manual_seed(seed)
        self._seed, self._tokens = seed, tokens
        self._model = _model(width, layers)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)

    def step(self, number: int) -> Tensor:
        """Take a step; return its loss, which lies on the device."""
        import torch

        draw = random.Random(self._seed * 1_000_003 + number)  # noqa: S311 (sizes, no secrets)
        batch = draw.randint(1, 16)
        length = draw.randint(self._tokens // 64, self._tokens // batch)
        words = torch.arange(batch * length, device="cuda").mul(7919).add(number)
        words = words.remainder(_WORDS).view(batch, length)
        with torch.autocast("cuda", torch.bfloat16):
            told = self._model(words).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(told.float(), words.roll(-1, 1).flatten())
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def _varying(allocator: str, *, is_tiny: bool) -> Callable[[int], Tensor]:
    del allocator
    return _Training(
        0, width=128 if is_tiny else 512, layers=2, tokens=2048 if is_tiny else 8192
    ).step


def _turns(allocator: str, *, is_tiny: bool) -> Callable[[int], Tensor]:
    import torch

    import gmlake

    is_ours = allocator == "gmlake"
    sizes = {"width": 128 if is_tiny else 512, "layers": 2, "tokens": 2048 if is_tiny else 16384}
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    if is_ours:
        with gmlake.region("first", backup="cpu"):
            first = _Training(1, **sizes)
    else:
        first = _Training(1, **sizes)
    second = _Training(2, **sizes)
    kept = torch.zeros(2, device="cuda")
    graph, warm = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    warm.wait_stream(main)
    with torch.cuda.graph(graph, stream=warm):
        mixed = (kept.repeat(1 << 20).mul(1.5) + 1).view(-1, 2).mean(0)
    every = 10 if is_tiny else _SLEEP_EVERY

    def step(number: int) -> Tensor:
        if is_ours and number and number % every == 0:
            gmlake.sleep("first")
            gmlake.wake("first")
        side.wait_stream(main)
        one = first.step(number)
        with torch.cuda.stream(side):
            other = second.step(number)
        main.wait_stream(side)
        kept.copy_(torch.stack((one, other)))
        del one, other
        graph.replay()
        return mixed.sum()

    return step


PROGRAMS = {"varying": _varying, "turns": _turns}


def _host_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def run(program: str, allocator: str, steps: int, *, is_tiny: bool) -> dict[str, Any]:
    """Take the steps of a program in this process."""
    import torch

    import gmlake

    torch.use_deterministic_algorithms(mode=True)
    if allocator == "gmlake":
        gmlake.enable()
    step = PROGRAMS[program](allocator, is_tiny=is_tiny)
    losses: list[Tensor] = []
    looks = []
    digest = hashlib.sha256()
    began = time.perf_counter()
    look_every = max(1, steps // _LOOKS)
    for number in range(steps):
        losses.append(step(number))
        if (number + 1) % look_every == 0 or number + 1 == steps:
            told = torch.stack(losses).tolist()
            losses.clear()
            digest.update(struct.pack(f"<{len(told)}d", *told))
            looks.append((torch.cuda.memory_reserved(), _host_bytes(), told[-1]))
    seconds = time.perf_counter() - began
    tenth = max(1, len(looks) // 10)
    reserved, host = ([look[which] for look in looks] for which in (0, 1))
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "steps": steps,
        "seconds": round(seconds, 2),
        "losses": digest.hexdigest(),
        "last_loss": looks[-1][2],
        "peak_live_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "reserved_bytes": reserved,
        "host_bytes": host,
        "reserved_risen_bytes": max(reserved[tenth:]) - max(reserved[:tenth]),
        "host_risen_bytes": max(host[tenth:]) - max(host[:tenth]),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run each program under each allocator, one after the other or, where asked, at once."""

    def ask(pair: tuple[str, str]) -> dict[str, Any]:
        program, allocator = pair
        steps = options.steps or (_TINY if options.tiny else STEPS)[program]
        words = [program, "--alone", allocator, "--steps", str(steps)]
        words += ["--tiny"] if options.tiny else []
        command = [sys.executable, "-m", "gpu.long", "--programs", *words]
        told = machine.told_by(command, env=environment(allocator))
        print(f"{program}, {allocator}: {told.get('failed', 'done')}", flush=True)
        return told

    pairs = [(name, of) for name in options.programs for of in options.allocators]
    with ThreadPoolExecutor(len(pairs) if options.at_once else 1) as pool:
        told = dict(zip(pairs, pool.map(ask, pairs), strict=True))
    found = {name: {of: told[name, of] for of in options.allocators} for name in options.programs}
    for runs in found.values():
        expected = next(iter(runs.values())).get("losses")
        for one in runs.values():
            one["has_same_losses"] = "failed" not in one and one["losses"] == expected
    return found


def show(found: dict[str, Any]) -> None:
    """Print a row for each program and allocator."""
    columns = ("steps", "s", "live MiB", "reserved MiB", "risen MiB", "host MiB", "risen", "losses")
    table = Table("program", "allocator", *columns)
    for program, runs in found.items():
        for allocator, told in runs.items():
            if "failed" in told:
                table.add_row(program, allocator, told["failed"])
                continue
            sizes = ("peak_live", "peak_reserved", "reserved_risen")
            table.add_row(
                *(program, allocator, f"{told['steps']}", f"{told['seconds']:.1f}"),
                *(f"{told[f'{name}_bytes'] / MIB:.0f}" for name in sizes),
                f"{told['host_bytes'][-1] / MIB:.0f}",
                f"{told['host_risen_bytes'] / MIB:.0f}",
                "same" if told["has_same_losses"] else "DIFFER",
            )
    Console(width=max(Console().width, 120)).print(table)


def main() -> int:
    """Measure, print, and keep it with --write; 1 where a run failed or losses differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=list(ALLOCATORS))
    parser.add_argument("--steps", type=int, default=0, help="other than usual")
    parser.add_argument(
        "--at-once", action="store_true", help="side by side: their seconds say nothing then"
    )
    parser.add_argument("--alone", choices=ALLOCATORS, help="run one program in this process")
    parser.add_argument("--tiny", action="store_true", help="sizes for the stand-in")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_long.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    options = parser.parse_args()
    if options.alone:
        (program,) = options.programs
        print(json.dumps(run(program, options.alone, options.steps, is_tiny=options.tiny)))
        return 0
    found = measure(options)
    show(found)
    if options.write or options.output:
        every = {f"{name} {of}": told for name, runs in found.items() for of, told in runs.items()}
        gpu = machine.devices_of(every)
        figures = {"at_once": options.at_once, "programs": found}
        print(machine.write("gpu_long", figures, path=options.output, gpu=gpu))
    return int(
        not all(told["has_same_losses"] for runs in found.values() for told in runs.values())
    )


if __name__ == "__main__":
    sys.exit(main())
