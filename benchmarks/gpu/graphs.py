"""What CUDA graphs cost in memory and in time, under PyTorch's allocators and gmlake.

    PYTHONPATH=benchmarks python -m gpu.graphs [--write] [--parts decode] [--pools own]

Ways: PyTorch's `default` and `expandable`, `gmlake`, and `turns`, which is gmlake with each capture
inside gmlake.graphs_take_turns().

decode           A decode server (decoder.py) captures a graph for each of 32 batch sizes: into one
                 pool, sizes ascending or descending, or each into a pool of its own. A process for
                 each way and kind of pool. added: memory once all are captured, less that before
                 the first, when kernels were loaded and work areas made. Graphs of changing batch
                 sizes then decode in turn, and the tokens must be equal to the bit.
replays          How long a replay takes. Processes differ by more than allocators do, so one
                 process captures the graphs under PyTorch's allocator, the same `again`, and then
                 under gmlake and in turns, all with the same weights and cache, and replays them
                 after one another, in an order drawn anew each time. A trial gives each way one
                 ratio to PyTorch's allocator; `again` shows how much is chance. Intervals hold the
                 median of the ratios at 95 % (bootstrap), for this process.
reduce-overhead  A GPT by torch.compile(mode="reduce-overhead"), five batch sizes in turn. Graphs as
                 many, and answers equal to the bit.

On the stand-in GPU a replay does nothing: only memory means something there.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls
# mypy: disable-error-code="attr-defined, unused-ignore"

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

import gmlake
import machine
from gpu import loop
from gpu.decoder import SIZES, Decoder, decode
from gpu.ratios import compared
from gpu.settings import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Told = dict[str, Any]

_PARTS = ("decode", "replays", "reduce-overhead")
_WAYS = ("default", "expandable", "gmlake", "turns")
_POOLS = ("one-ascending", "one-descending", "own")
_BATCHES = (1, 2, 4, *range(8, 233, 8))
_TIMED_BATCHES = (1, 32, 128, _BATCHES[-1])
_DECODED = 64  # steps
_WARMING = 10  # trials that are not counted
_LONGEST_RUN_SECONDS = 480
_GPTS = {
    "full": loop.Size(layers=12, width=768, heads=12, vocab=32_000, window=256, tokens=0),
    "tiny": loop.Size(layers=1, width=64, heads=2, vocab=100, window=16, tokens=0),
}
_GPT_BATCHES = (1, 2, 4, 8, 16)
_GPT_ROUNDS = 4


# ---- in a process of one way ---------------------------------------------------------------------


def serve(way: str) -> None:
    """Let gmlake serve from now on, where it is what runs."""
    if way in ("gmlake", "turns"):
        session = gmlake.enable()
        if session.mode != "native":
            sys.exit(f"gmlake does not serve: {session.why}")


def taking_turns(way: str) -> AbstractContextManager[object]:
    """Return what a graph of that way is captured in."""
    if way != "turns":
        return nullcontext()
    take_turns: Any = gmlake.graphs_take_turns
    turns: AbstractContextManager[object] = take_turns("decode")
    return turns


def versions() -> Told:
    """Return what ran, and on what."""
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def held_bytes() -> Told:
    """Return what is held once nothing idle is: by PyTorch's figures, and by the device's."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return {"reserved_bytes": torch.cuda.memory_reserved(), "device_bytes": machine.used_bytes()}


class Graphs:
    """The graphs of a decoder, one for each batch size, captured on one stream.

    What a stream keeps, such as cuBLAS's work area, is made by the warm-up and thus outside of the
    graphs, as in vLLM.
    """

    def __init__(self, decoder: Decoder) -> None:
        """Warm up for all batch sizes, so that nothing is made later but graphs."""
        self.decoder = decoder
        self.stream = torch.cuda.Stream()
        for batch in _BATCHES:
            self._warm_up(batch)

    def _warm_up(self, batch: int) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.decoder.step(batch)
        torch.cuda.current_stream().wait_stream(self.stream)

    def capture(self, way: str, pools: str) -> dict[int, torch.cuda.CUDAGraph]:
        """Capture all; the allocator is the one that serves."""
        graphs = {}
        pool = None if pools == "own" else torch.cuda.graph_pool_handle()
        for batch in _BATCHES[:: -1 if pools == "one-descending" else 1]:
            self._warm_up(batch)
            graphs[batch] = torch.cuda.CUDAGraph()
            with (
                taking_turns(way),
                torch.cuda.graph(graphs[batch], pool=pool, stream=self.stream),
            ):
                self.decoder.step(batch)
        return graphs


def measure_decode(way: str, options: argparse.Namespace) -> Told:
    """Capture all graphs and decode; return bytes and a hash of the tokens."""
    torch.cuda.init()
    empty = machine.used_bytes()
    serve(way)
    decoder = Decoder(SIZES[options.size], _BATCHES[-1])
    graphs = Graphs(decoder)
    before = held_bytes()
    captured = graphs.capture(way, options.pools[0])
    after = held_bytes()
    tokens = decode(decoder, lambda batch: captured[batch].replay(), _BATCHES, _DECODED)
    return {
        "reserved_bytes": after["reserved_bytes"],
        "device_bytes": after["device_bytes"] - empty,
        **{f"added_{name}": size - before[name] for name, size in after.items()},
        "model_bytes": sum(each.nbytes for each in decoder.tensors()),
        "tokens": tokens,
        **versions(),
    }


def seconds_of(
    replays: Sequence[Callable[[], object]], orders: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Replay each once in each order; return the device's seconds, in the order of `replays`.

    All are queued before any is waited for, so that the device never waits for the host.
    """
    events = [
        [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in replays] for _ in orders
    ]
    for order, of_trial in zip(orders, events, strict=True):
        for number in order:
            began, ended = of_trial[number]
            began.record()
            replays[number]()
            ended.record()
    torch.cuda.synchronize()
    return [[began.elapsed_time(ended) / 1000 for began, ended in of_trial] for of_trial in events]


def measure_replays(way: str, options: argparse.Namespace) -> Told:
    """Replay graphs of all ways beside each other; `way` is what PyTorch's allocator is."""
    decoder = Decoder(SIZES[options.size], _BATCHES[-1])
    graphs = Graphs(decoder)
    places = [each.data_ptr() for each in decoder.tensors()]
    live = torch.cuda.memory_allocated()
    captured = {each: graphs.capture(each, options.pools[0]) for each in (way, "again")}
    for each in ("gmlake", "turns"):
        if each in options.ways:
            serve(each)
            captured[each] = graphs.capture(each, options.pools[0])
    # A graph with weights or a cache of its own would be another program.
    is_shared = [each.data_ptr() for each in decoder.tensors()] == places
    grown = torch.cuda.memory_allocated() - live
    tokens = {
        each: decode(decoder, lambda batch, its=its: its[batch].replay(), _BATCHES, _DECODED)  # type: ignore[misc]
        for each, its in captured.items()
    }
    chance = random.Random(0)  # noqa: S311 (no secret)
    batches: dict[str, Told] = {}
    for batch in _TIMED_BATCHES:
        decoder.begin()
        replays = [its[batch].replay for its in captured.values()]
        numbers = range(len(replays))
        orders = [chance.sample(numbers, len(replays)) for _ in range(_WARMING + options.trials)]
        trials = seconds_of(replays, orders)[_WARMING:]
        taken = dict(zip(captured, zip(*trials, strict=True), strict=True))
        batches[str(batch)] = {
            each: {
                "seconds": statistics.median(its),
                **compared([mine / base for mine, base in zip(its, taken[way], strict=True)]),
            }
            for each, its in taken.items()
        }
    return {
        "batches": batches,
        "trials": options.trials,
        "tokens": tokens,
        "has_one_model": is_shared and grown < decoder.cache.nbytes,
        "grown_bytes": grown,
        **versions(),
    }


def measure_compiled(way: str, options: argparse.Namespace) -> Told:
    """Let batches of five sizes through a compiled GPT; return graphs, bytes and a hash."""
    from torch.utils._triton import has_triton

    if not (has_triton() and any(map(shutil.which, ("cc", "gcc", "clang")))):
        why = "there is no Triton, or no C compiler for what it launches"
        return {"skipped": why, **versions()}
    from torch._inductor import config, cudagraph_trees

    # 2.11 fails an assertion of its own in this analysis, where sizes are symbols.
    config.triton.coalesce_tiling_analysis = False
    torch.use_deterministic_algorithms(mode=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.cuda.init()
    empty = machine.used_bytes()
    serve(way)
    size = _GPTS[options.size]
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = loop.Model(size).to(torch.bfloat16)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(
            size.window, dtype=torch.bfloat16
        )
        tokens = torch.randint(size.vocab, (_GPT_BATCHES[-1], size.window))
    run = torch.compile(model, mode="reduce-overhead", dynamic=False)
    answers = hashlib.sha256()
    with torch.inference_mode():
        for batch in _GPT_BATCHES * _GPT_ROUNDS:
            torch.compiler.cudagraph_mark_step_begin()
            logits = run(tokens[:batch], mask)
            answers.update(logits.view(torch.int16).cpu().numpy().tobytes())
    del logits
    manager = cudagraph_trees.get_manager(torch.cuda.current_device(), False)  # noqa: FBT003
    roots = list(manager.get_roots()) if manager else []
    held = held_bytes()
    return {
        "graphs": sum(1 + root.num_descendants() for root in roots),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "reserved_bytes": held["reserved_bytes"],
        "device_bytes": held["device_bytes"] - empty,
        "answers": answers.hexdigest(),
        **versions(),
    }


_MEASURES: dict[str, Callable[[str, argparse.Namespace], Told]] = {
    "decode": measure_decode,
    "replays": measure_replays,
    "reduce-overhead": measure_compiled,
}


# ---- all of them ---------------------------------------------------------------------------------


def ask(part: str, way: str, pools: str, options: argparse.Namespace) -> Told:
    """Return what a process of its own measured, or `failed`."""
    words = ["--one", part, "--way", way, "--size", options.size, "--trials", str(options.trials)]
    words += ["--ways", *options.ways, "--pools", pools]
    variables = environment("expandable" if way == "expandable" else "default")
    variables["TORCHINDUCTOR_CACHE_DIR"] = options.cache
    command = [sys.executable, "-m", "gpu.graphs", *words]
    return machine.told_by(command, env=variables, seconds=_LONGEST_RUN_SECONDS)


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield part, way and pools of each process; only `decode` lets pools be chosen."""
    if "decode" in options.parts:
        for pools, way in itertools.product(options.pools, options.ways):
            yield "decode", way, pools
    if "replays" in options.parts:
        for way in options.ways:
            if way in ("default", "expandable"):
                yield "replays", way, "one-descending"
    if "reduce-overhead" in options.parts:
        for way in options.ways:
            if way != "turns":
                yield "reduce-overhead", way, "own"


def agreement(figures: Told) -> dict[str, bool]:
    """Return whether all ways came to the same, of the parts that ran."""
    decoded = [told for ways in figures["decode"].values() for told in ways.values()]
    replays, compiled = (list(figures[part].values()) for part in ("replays", "reduce-overhead"))
    compiled = [told for told in compiled if "skipped" not in told]
    ran = decoded + replays + compiled
    found = {"has_ended": not any("failed" in told for told in ran)}
    if not found["has_ended"]:
        return found
    if decoded or replays:
        tokens = {told["tokens"] for told in decoded}
        tokens.update(*(told["tokens"].values() for told in replays))
        found["has_same_tokens"] = len(tokens) == 1
    if replays:
        found["has_one_model"] = all(told["has_one_model"] for told in replays)
    if compiled:
        found["has_same_answers"] = len({told["answers"] for told in compiled}) == 1
        found["has_same_graphs"] = len({told["graphs"] for told in compiled}) == 1
    return found


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f}"


def _show_memory(
    console: Console, title: str, ways: dict[str, Told], figures: Sequence[str]
) -> None:
    table = Table(title, *(name.replace("_bytes", " MiB").replace("_", " ") for name in figures))
    for way, told in ways.items():
        if why := told.get("failed") or told.get("skipped"):
            table.add_row(way, why)
            continue
        table.add_row(
            way,
            *(
                _mib(told[name]) if name.endswith("_bytes") else str(told[name])[:8]
                for name in figures
            ),
        )
    console.print(table)


def show(figures: Told) -> None:
    """Print a table for each kind of pool, one for the replays, and one for the compiled GPT."""
    console = Console(width=120)
    names = ("added_reserved_bytes", "added_device_bytes", "reserved_bytes", "device_bytes")
    for pools, ways in figures["decode"].items():
        _show_memory(console, f"graphs, pools: {pools}", ways, (*names, "tokens"))
    for base, told in figures["replays"].items():
        if "failed" in told:
            console.print(f"replays, {base}: {told['failed']}", markup=False)
            continue
        table = Table("replay", "batch", "ms", f"of {base}", "95 %")
        for batch, ways in told["batches"].items():
            for way, its in ways.items():
                spread = f"{its['low']:.4f} to {its['high']:.4f}"
                milliseconds = f"{1000 * its['seconds']:.4f}"
                table.add_row(way, batch, milliseconds, f"{its['ratio']:.4f}", spread)
        console.print(table)
    if figures["reduce-overhead"]:
        shown = ("graphs", "reserved_bytes", "peak_reserved_bytes", "device_bytes", "answers")
        _show_memory(console, "reduce-overhead", figures["reduce-overhead"], shown)
    console.print(figures["agreement"])


def main() -> int:
    """Measure, print, and keep it with --write or --output; 1 where ways differ or fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    add("--ways", nargs="+", choices=_WAYS, default=list(_WAYS))
    add("--pools", nargs="+", choices=_POOLS, default=list(_POOLS), help="of decode")
    add("--trials", type=int, default=200, help="of replays, for each batch size (200)")
    add("--size", choices=SIZES, default="full")
    add("--write", action="store_true", help="keep it as results/gpu_graphs.json")
    add("--output", type=Path, metavar="FILE", help="keep it there instead")
    add("--one", choices=_PARTS, help=argparse.SUPPRESS)
    add("--way", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_MEASURES[options.one](options.way, options)))
        return 0
    if "turns" in options.ways and not hasattr(gmlake, "graphs_take_turns"):
        print("turns: skipped, this gmlake has no graphs_take_turns()")
        options.ways.remove("turns")
    figures: Told = {"size": options.size, "batches": _BATCHES, "decode": {}, "replays": {}}
    figures |= {"reduce-overhead": {}, "agreement": {}}
    ended: dict[str, Told] = {}
    with tempfile.TemporaryDirectory() as options.cache:
        for part, way, pools in jobs(options):
            told = ask(part, way, pools, options)
            outcome = told.get("failed") or told.get("skipped", "done")
            print(f"{part}, {way}, {pools}: {outcome}", file=sys.stderr)
            if part == "decode":
                figures["decode"].setdefault(pools, {})[way] = told
            else:
                figures[part][way] = told
            ended[f"{part} {way} {pools}"] = told
            figures["agreement"] = agreement(figures)
            if options.write or options.output:  # what was measured is kept if a later one hangs
                gpu = machine.devices_of(ended)
                machine.write("gpu_graphs", figures, path=options.output, gpu=gpu)
    show(figures)
    return int(not all(figures["agreement"].values()))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
