r"""What else of PyTorch a program may use, under each allocator: the same answers, and how fast.

    PYTHONPATH=benchmarks python -m gpu.features [--features compiled,observed] [--write]

Each run is a process of its own, alone on the device; every other round goes in the opposite order.
A feature of which only the answer counts runs once for each allocator.

convnet    ResNet-50 trained with cudnn.benchmark, whose trials take work areas from the allocator
replay     a captured training step, replayed
compiled   a GPT by torch.compile(mode="reduce-overhead"), with batches of five sizes in turn
profiled   the bytes that the profiler counts for each operator of a training step
observed   an observer of refusals that dumps a snapshot with the history
late       a Llama of 7 billion parameters is on the device when gmlake begins
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any
# mypy: disable-error-code="import-not-found, attr-defined, unused-ignore"

# Memory history, snapshots and observers have private names only.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gpu.settings import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

Answer = dict[str, Any]

_MIB = 1 << 20
_ALLOCATORS = ("default", "expandable", "gmlake")
_TIMED = ("convnet", "replay", "compiled")


def serve(stack: ExitStack, allocator: str) -> Any:  # noqa: ANN401
    """Let gmlake serve from now on, where it is what runs; return its region."""
    if allocator != "gmlake":
        return None
    import gmlake

    return stack.enter_context(gmlake.enabled())


def timed_steps(step: Callable[[int], Tensor], count: int) -> Answer:
    """Return the losses, and the median time of the second half of the steps."""
    losses, seconds = [], []
    for index in range(count):
        began = time.perf_counter()
        losses.append(float(step(index)).hex())  # waits for the device
        seconds.append(time.perf_counter() - began)
    return {"losses": losses, "step_seconds": statistics.median(seconds[count // 2 :])}


# ---- features, in the process of one allocator ---------------------------------------------------


def convnet(stack: ExitStack, allocator: str, *, is_tiny: bool) -> Answer:
    """Train on pictures of one size; cuDNN chooses its algorithms by trying them."""
    import torch
    from torch.nn import functional

    from gpu.networks import ConvNet

    serve(stack, allocator)
    torch.backends.cudnn.benchmark = True
    with torch.device("cuda"):
        model = ConvNet((1, 1, 1, 1) if is_tiny else (3, 4, 6, 3))
        pictures = torch.randn(2 if is_tiny else 128, 3, 224, 224)
        labels = torch.randint(1000, (len(pictures),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(_index: int) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss: Tensor = functional.cross_entropy(model(pictures).float(), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    told = timed_steps(step, 4 if is_tiny else 60)
    del told["losses"]  # other algorithms may win, which round otherwise
    return told | {"peak_reserved_bytes": torch.cuda.max_memory_reserved()}


def replay(stack: ExitStack, allocator: str, *, is_tiny: bool) -> Answer:
    """Capture a training step once, and replay it."""
    import torch
    from torch import nn

    serve(stack, allocator)
    torch.manual_seed(1)
    width = 64 if is_tiny else 1024
    with torch.device("cuda"):
        layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(16)))
        given = torch.randn(64, width)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            layers(given).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    layers.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss: Tensor = layers(given).square().mean()
        loss.backward()

    def step(_index: int) -> Tensor:
        for _ in range(2 if is_tiny else 100):
            graph.replay()
        return loss

    return timed_steps(step, 4 if is_tiny else 40)


def compiled(stack: ExitStack, allocator: str, *, is_tiny: bool) -> Answer:
    """Compile a GPT with CUDA graphs; batches of other sizes make other graphs."""
    import torch
    from torch import nn
    from torch.nn import functional

    serve(stack, allocator)
    recordings = Counter[str]()
    begin = torch.cuda.CUDAGraph.capture_begin

    def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        recordings["all"] += 1
        return begin(*arguments, **options)

    torch.cuda.CUDAGraph.capture_begin = counted  # type: ignore[method-assign]
    torch._inductor.config.triton.cudagraph_dynamic_shape_warn_limit = None
    # 2.11 fails an assertion of its own in this analysis, where sizes are symbols.
    torch._inductor.config.triton.coalesce_tiling_analysis = False
    width, layers, words = (64, 1, 100) if is_tiny else (768, 4, 8000)

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(words, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
                )
                for _ in range(layers)
            )

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.tokens(tokens[:, :-1])
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device)
            for layer in self.layers:
                x = layer(x, src_mask=mask, is_causal=True)
            scores = functional.linear(x, self.tokens.weight).flatten(0, 1)
            loss: Tensor = functional.cross_entropy(scores, tokens[:, 1:].flatten())
            return loss

    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Gpt()
    run = torch.compile(model, mode="reduce-overhead", dynamic=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = itertools.cycle((8, 3, 8, 5, 12, 3, 8, 7))

    def step(_index: int) -> Tensor:
        loss: Tensor = run(torch.randint(words, (next(batches), 129), device="cuda"))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return timed_steps(step, 8 if is_tiny else 48) | {"recordings": recordings["all"]}


def profiled(stack: ExitStack, allocator: str, *, is_tiny: bool) -> Answer:
    """Profile the memory of a training step."""
    import torch
    from torch import nn
    from torch.profiler import profile

    serve(stack, allocator)
    width = 64 if is_tiny else 2048
    with torch.device("cuda"):
        layer = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        given = torch.randn(width, width)
    layer(given).sum().backward()
    with profile(profile_memory=True) as seen:
        layer(given).sum().backward()
    rows = ((row.key, row.self_device_memory_usage) for row in seen.key_averages())
    return {"bytes": {name: size for name, size in sorted(rows) if size}}


def hold_more(held: list[Tensor]) -> None:
    """Take memory to the end."""
    import torch

    while True:
        held.append(torch.empty(512 * _MIB, dtype=torch.uint8, device="cuda"))


def observed(stack: ExitStack, allocator: str, *, is_tiny: bool) -> Answer:  # noqa: ARG001
    """Be told of a refusal before the program is, and keep what holds the memory."""
    import torch

    serve(stack, allocator)
    torch.cuda.memory._record_memory_history(stacks="python")
    told: Answer = {"observed": 0, "lines": 0, "oom_events": 0}

    def dump(device: int, *_sizes: int) -> None:
        snapshot = torch.cuda.memory._snapshot(device)
        blocks = [block for part in snapshot["segments"] for block in part["blocks"]]
        named = [
            any(frame["name"] == "hold_more" for frame in block.get("frames", ()))
            for block in blocks
            if block["state"] == "active_allocated"
        ]
        told["observed"] += 1
        told["lines"] = sum(named)
        told["oom_events"] = sum(event["action"] == "oom" for event in snapshot["device_traces"][0])

    torch._C._cuda_attach_out_of_memory_observer(dump)
    held: list[Tensor] = []
    try:
        hold_more(held)
    except torch.OutOfMemoryError:
        told["all_named"] = told["lines"] == len(held)
    return told


def late(stack: ExitStack, allocator: str, *, is_tiny: bool) -> Answer:
    """Load a large model first, and then let batches of any length through it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from gpu.programs import parameters_in

    sizes = (64, 128, 2, 4) if is_tiny else (4096, 11008, 32, 32)
    width, inner, layers, heads = sizes
    config = LlamaConfig(
        vocab_size=1000 if is_tiny else 32000,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        use_cache=False,
    )
    torch.manual_seed(1)
    with parameters_in(torch.bfloat16):
        model = LlamaForCausalLM(config)
    loaded_bytes = torch.cuda.memory_allocated()
    for weight in model.parameters():
        weight.requires_grad_(requires_grad=False)
    adapted = model.model.layers[0].self_attn.q_proj.weight.requires_grad_()
    region = serve(stack, allocator)

    def step(index: int) -> Tensor:
        torch.manual_seed(index)
        length = 64 if is_tiny else int(torch.randint(200, 1600, (1,)))
        tokens = torch.randint(config.vocab_size, (4, length), device="cuda")
        loss: Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()  # type: ignore[no-untyped-call]
        adapted.grad = None
        return loss.detach()

    told = timed_steps(step, 2 if is_tiny else 16)
    told |= {
        "loaded_bytes": loaded_bytes,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
    }
    if region is not None:
        stats = region.stats()
        told |= {"served_bytes": stats["highest_live_bytes"], "states": stats["states"]}
    return told


FEATURES: dict[str, Callable[..., Answer]] = {
    "convnet": convnet,
    "replay": replay,
    "compiled": compiled,
    "profiled": profiled,
    "observed": observed,
    "late": late,
}


def answer(name: str, allocator: str, *, is_tiny: bool) -> Answer:
    """Use a feature in this process."""
    import torch

    torch.use_deterministic_algorithms(name in ("compiled", "late"))
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("high")
    with ExitStack() as stack:
        return FEATURES[name](stack, allocator, is_tiny=is_tiny)


# ---- all of them ---------------------------------------------------------------------------------


def ask(name: str, allocator: str, options: argparse.Namespace) -> Answer:
    """Return the answer of a process of its own, or `failed`."""
    command = [sys.executable, "-m", "gpu.features", "--one", name, "--allocator", allocator]
    variables = environment(allocator)
    variables["TORCHINDUCTOR_CACHE_DIR"] = options.cache
    return machine.told_by([*command, "--size", options.size], env=variables, seconds=480)


def runs(name: str, options: argparse.Namespace) -> dict[str, list[Answer]]:
    """Return the answers of all rounds, by allocator."""
    allocators = options.allocators.split(",")
    found: dict[str, list[Answer]] = {allocator: [] for allocator in allocators}
    for round_ in range(options.rounds if name in _TIMED else 1):
        for allocator in allocators[:: -1 if round_ % 2 else 1]:
            found[allocator].append(ask(name, allocator, options))
    return found


def compare(by_allocator: dict[str, list[Answer]]) -> Iterator[tuple[str, str, Any]]:
    """Yield allocator, figure, and its median or what is the same in all runs."""
    expected = by_allocator.get("default", [{}])[0]
    for allocator, told in by_allocator.items():
        for key, value in told[-1].items():
            if key in ("losses", "bytes"):
                is_same = all(run.get(key) == expected.get(key) for run in told)
                yield allocator, f"same {key}", is_same
            elif key == "step_seconds":
                times = [run[key] for run in told if key in run]
                spread = f" ({min(times):.5f} to {max(times):.5f})"
                yield allocator, key, f"{statistics.median(times):.5f}{spread}"
            else:
                yield allocator, key, value


def main() -> None:
    """Ask in turns, print, and keep it with --write or --output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--features", default=",".join(FEATURES), help="a,b: of those above")
    parser.add_argument("--allocators", default=",".join(_ALLOCATORS), help="a,b (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of those whose time counts (3)")
    parser.add_argument("--size", choices=("full", "tiny"), default="full", help="of the programs")
    parser.add_argument("--write", action="store_true", help="keep it in results/gpu_features.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--one", choices=FEATURES, help=argparse.SUPPRESS)
    parser.add_argument("--allocator", choices=_ALLOCATORS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(answer(options.one, options.allocator, is_tiny=options.size == "tiny")))
        return
    import torch

    circumstances = machine.describe(gpu=torch.cuda.get_device_name())
    circumstances["torch"] = torch.__version__
    paths = list(filter(None, (options.output, options.write and _result())))
    with tempfile.TemporaryDirectory() as options.cache:
        for name in options.features.split(","):
            found = runs(name, options)
            table = Table("allocator", "figure", "value", title=name)
            for row in compare(found):
                table.add_row(*(str(cell) for cell in row))
            Console(width=150).print(table)
            for path in paths:
                keep(path, name, {"run": circumstances, "allocators": found})


def keep(path: Path, name: str, told: dict[str, Any]) -> None:
    """Put the answers into the file, where those of other features stay."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(held | {name: told}, indent=1) + "\n", encoding="utf-8")


def _result() -> Path:
    return machine.RESULTS / "gpu_features.json"


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
