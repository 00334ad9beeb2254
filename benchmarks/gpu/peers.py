"""One inference step, repeated, under PyTorch's allocators, gmlake and comfy-aimdo's compiler.

    PYTHONPATH=benchmarks python -m gpu.peers [--write] [--ways default,planned] [--rounds 3]

The step is that of an image generator (diffusion.py). Each way has a process of its own, --rounds
of them, every other round in the opposite order. `stitch` is gmlake and `planned` gmlake with
AutoPlan. comfy-aimdo 0.6.0 catches cuMemAllocAsync, so PyTorch's `async` allocator runs below it,
as in ComfyUI; it records a step and lays out its memory. `aimdo` has a scope for each block, as
ComfyUI's models do, `aimdo-whole` one for the step. It runs where it is installed, and in no
process but its own.

Each process takes a step that loads kernels, releases everything and measures what of the device is
in use. Then it makes the model again, takes a step in which libraries make what they keep, and
releases idle memory. Only what follows counts: a `first` step and more to warm up, in which plans
are made, steps with a clock, one in which the memory in use is read after every layer, and one in
which calls of the driver for memory are counted (calls.py). The picture of every step has to be
equal to the bit.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

GIB = 1 << 30
WAYS = {
    "default": "default",
    "expandable": "expandable",
    "async": "async",
    "stitch": "gmlake",
    "planned": "gmlake",
    "aimdo": "async",
    "aimdo-whole": "async",
}
"""The allocator that PyTorch starts with, for each."""
NOT_INSTALLED = "not installed"
_SIZES = ("full", "tiny")
_TIMES = ("host", "device", "wall")
_BYTES = ("weights_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "device_bytes")
_WARMING = 12  # steps after the first
_LONGEST_RUN_SECONDS = 300


# ---- in a process of one way ---------------------------------------------------------------------


class Plain:
    """A step as the allocator serves it by itself."""

    def step(self) -> AbstractContextManager[object]:
        """Return what a step runs in."""
        return contextlib.nullcontext()

    def at(self, place: str) -> None:
        """Hear where in the step the model is."""

    def told(self) -> dict[str, Any]:
        """Return what there is to say after the last step."""
        return {}

    def reserved_bytes(self) -> int:
        """Return the most that was held."""
        import torch

        return int(torch.cuda.max_memory_reserved())


class Stitched(Plain):
    """gmlake, with steps planned or not."""

    def __init__(self, *, plans: bool) -> None:
        """Let gmlake serve from now on."""
        import gmlake

        self.session = gmlake.enable()
        if self.session.mode != "native":
            sys.exit(f"gmlake does not serve: {self.session.why}")
        self.auto = gmlake.AutoPlan() if plans else None

    def step(self) -> AbstractContextManager[object]:
        """Return the step of the plan, if steps are planned."""
        return self.auto.step() if self.auto else super().step()

    def told(self) -> dict[str, Any]:
        """Return how requests were served, and how the last step was planned."""
        last = self.auto.last if self.auto else None
        states = {"states": dict(self.session.stats()["states"])}
        return {**states, "planned": str(last), "hit_rate": last.hit_rate} if last else states


class Compiled(Plain):
    """comfy-aimdo's memory compiler, driven as ComfyUI drives it."""

    def __init__(self, *, scopes: bool) -> None:
        """Let it catch calls of the driver. scopes: each block is one."""
        import torch

        try:
            self.control = importlib.import_module("comfy_aimdo.control")
        except ImportError:
            sys.exit(NOT_INSTALLED)
        if not (self.control.init() and self.control.init_device(torch.cuda.current_device())):
            sys.exit("comfy-aimdo could not catch calls of the driver")
        self.scopes = scopes
        self.graph: Any = None
        self.is_open = False
        self.breaks = 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Record the first step, and serve later ones as it was."""
        import torch

        if self.graph is None:
            self.graph = self.control.record(torch.cuda.current_stream())
        else:
            self.graph.push()
        self.is_open = True
        yield
        self.breaks += bool(self.graph.pop())
        self.is_open = False

    def at(self, place: str) -> None:
        """Begin a scope with each block, and end the last with them."""
        if self.scopes and self.is_open and place in ("block", "decoder"):
            self.breaks += bool(self.graph.iterate("block" if place == "block" else None))

    def told(self) -> dict[str, Any]:
        """Return its own figures."""
        names = ("peak_used", "virtual_bytes", "physical_bytes", "rogue_count")
        return {"breaks": self.breaks, **{name: getattr(self.graph, name) for name in names}}

    def reserved_bytes(self) -> int:
        """Return what it holds, with what PyTorch holds outside of its steps."""
        return super().reserved_bytes() + int(self.graph.physical_bytes)


def begin(way: str) -> Plain:
    """Return how steps of that way are served, from now on."""
    if way in ("stitch", "planned"):
        return Stitched(plans=way == "planned")
    if way in ("aimdo", "aimdo-whole"):
        return Compiled(scopes=way == "aimdo")
    return Plain()


def release() -> None:
    """Give idle memory back to the device, and what cuBLAS keeps."""
    import torch

    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 (it has no other name)
    torch.cuda.empty_cache()


def made(size: str) -> Any:  # noqa: ANN401 (a model, where PyTorch may be absent)
    """Return the model, the same in every process."""
    import torch

    from gpu import diffusion

    torch.manual_seed(0)
    with torch.device("cuda"):
        return diffusion.Diffusion(diffusion.SIZES[size])


def digest(picture: Any) -> str:  # noqa: ANN401 (a tensor)
    """Return a hash of the bits."""
    import torch

    return hashlib.sha256(picture.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()


def timed(way: Plain, model: Any) -> dict[str, float]:  # noqa: ANN401 (a model)
    """Take a step; return seconds of the host until all is queued, of the device, and of both."""
    import torch

    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    began = time.perf_counter()
    begun.record()
    with way.step():
        model.step(way.at)
    ended.record()
    queued = time.perf_counter()
    torch.cuda.synchronize()
    done = time.perf_counter()
    device = begun.elapsed_time(ended) / 1000
    return {"host": queued - began, "device": device, "wall": done - began}


def counted(way: Plain, model: Any) -> dict[str, Any]:  # noqa: ANN401 (a model)
    """Take a step; return its calls for memory, and those that PyTorch's own figures know."""
    import torch

    from gpu.calls import Calls

    names = ("num_device_alloc", "num_device_free")

    def own() -> int:
        stats = torch.cuda.memory_stats()
        return sum(int(stats.get(name, 0)) for name in names)

    before = own()
    with Calls() as calls, way.step():
        model.step(way.at)
    torch.cuda.synchronize()
    return {"calls": calls.told(), "why": calls.why, "own_calls": own() - before}


def most_used(way: Plain, model: Any) -> int:  # noqa: ANN401 (a model)
    """Take a step; return the most of the device that was in use after any layer."""
    seen: list[int] = []

    def at(place: str) -> None:
        way.at(place)
        seen.append(machine.used_bytes())

    with way.step():
        model.step(at)
    return max(seen)


def measure(name: str, size: str, steps: int) -> dict[str, Any]:
    """Return what one process saw."""
    import torch

    torch.cuda.init()
    torch.set_default_dtype(torch.bfloat16)
    torch.backends.cudnn.deterministic = True
    way = begin(name)
    model = made(size)
    model.step(lambda _: None)
    del model
    release()
    empty = machine.used_bytes()
    model = made(size)
    model.step(lambda _: None)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    weights = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    first = counted(way, model)
    pictures = {digest(model.picture)}
    for _ in range(_WARMING):
        timed(way, model)
    times = [timed(way, model) for _ in range(steps)]
    pictures.add(digest(model.picture))
    used = most_used(way, model)
    repeated = counted(way, model)
    pictures.add(digest(model.picture))
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "weights_bytes": weights,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": way.reserved_bytes(),
        "device_bytes": used - empty,
        "first": first,
        "repeated": repeated,
        "seconds": {part: [each[part] for each in times] for part in _TIMES},
        "pictures": sorted(pictures),
        **way.told(),
    }


# ---- all of them ---------------------------------------------------------------------------------


def ask(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    command = [sys.executable, "-m", "gpu.peers", "--one", way, "--size", options.size]
    command += ["--steps", str(options.steps)]
    return machine.told_by(command, env=environment(WAYS[way]), seconds=_LONGEST_RUN_SECONDS)


def calls_of(told: dict[str, Any]) -> int | None:
    """Return how many calls for memory a step made; None where none could be counted."""
    return None if told["calls"] is None else sum(told["calls"].values())


def summed(rounds: Sequence[dict[str, Any]], expected: Sequence[str]) -> dict[str, Any]:
    """Return the figures of one way from those of its processes; `failed` where one did.

    Sizes are medians. Times and calls have a figure for each process, a time the median of its
    steps. expected: the hashes that a process of another way has of its pictures.
    """
    for told in rounds:
        if "failed" in told:
            return {"failed": told["failed"]}
    told = {name: value for name, value in rounds[0].items() if name not in ("seconds", "pictures")}
    for name in _BYTES:
        told[name] = int(statistics.median(each[name] for each in rounds))
    seconds = {
        part: [round(statistics.median(each["seconds"][part]), 6) for each in rounds]
        for part in _TIMES
    }
    calls = {
        f"{step}_calls": [calls_of(each[step]) for each in rounds] for step in ("first", "repeated")
    }
    # A counter that sees nothing where memory is first taken sees nothing later either.
    if not all(calls["first_calls"]):
        calls["repeated_calls"] = [None for _ in rounds]
    is_same = len(expected) == 1 and all(each["pictures"] == expected for each in rounds)
    return {**told, "seconds": seconds, **calls, "has_same_pictures": is_same}


def rounds_of(
    ways: Sequence[str], options: argparse.Namespace
) -> Iterator[dict[str, dict[str, Any]]]:
    """Run each way once a round; after each, yield the sum of all until then."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(options.rounds):
        for way in list(ways)[:: -1 if number % 2 else 1]:
            if any(told.get("failed") == NOT_INSTALLED for told in runs[way]):
                continue
            runs[way].append(ask(way, options))
            print(f"round {number}, {way}: {runs[way][-1].get('failed', 'done')}", flush=True)
        expected = runs[ways[0]][0].get("pictures", [])
        yield {way: summed(rounds, expected) for way, rounds in runs.items()}


def show(figures: dict[str, Any]) -> None:
    """Print a row for each way."""
    columns = ("way", "live", "reserved", "device", "live/device", "calls", "again")
    table = Table(*columns, "host ms", "device ms", "picture", title="sizes in GiB")
    for way, told in figures["ways"].items():
        if "failed" in told:
            table.add_row(way, told["failed"])
            continue
        live, held = told["peak_allocated_bytes"], told["device_bytes"]
        table.add_row(
            way,
            *(f"{each / GIB:.3f}" for each in (live, told["peak_reserved_bytes"], held)),
            f"{live / held:.4f}" if held else "",
            *(str(told[f"{step}_calls"][0]) for step in ("first", "repeated")),
            *(
                f"{statistics.median(told['seconds'][part]) * 1000:.2f}"
                for part in ("host", "device")
            ),
            "same" if told["has_same_pictures"] else "DIFFERS",
        )
    Console(width=130).print(table)


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ways", default=",".join(WAYS), help="a,b of these (%(default)s)")
    parser.add_argument("--size", choices=_SIZES, default="full")
    parser.add_argument("--steps", type=int, default=30, help="with a clock, in a process (30)")
    parser.add_argument("--rounds", type=int, default=3, help="of processes (3)")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_peers.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.size, options.steps)))
        return 0
    ways = options.ways.split(",")
    if unknown := sorted(set(ways) - set(WAYS)):
        parser.error(f"no way is called '{unknown[0]}'; there are {', '.join(WAYS)}")
    figures: dict[str, Any] = {"size": options.size, "steps": options.steps}
    for rounds, told in enumerate(rounds_of(ways, options), start=1):
        figures |= {"rounds": rounds, "ways": told}
        if options.write or options.output:  # what was measured is kept if a later round hangs
            machine.write("gpu_peers", figures, path=options.output, gpu=machine.devices_of(told))
    show(figures)
    ran = [each for each in figures["ways"].values() if each.get("failed") != NOT_INSTALLED]
    return int(not all(each.get("has_same_pictures") for each in ran))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
