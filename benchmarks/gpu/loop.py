"""Train, sleep, generate, sleep, wake, many times: beside the same loop that never sleeps.

    PYTHONPATH=benchmarks python -m gpu.loop [--write] [--ranks 2]

Each way runs in processes of its own. A round trains one step (with several ranks under FSDP2),
copies the weights to a model that generates, and writes tokens by a captured graph. The way
`sleeps` has the training's weights and optimizer in one region, saved on the host, and the
generating model with its graph's memory in another, saved nowhere, and one of the two always sleeps
while the other works. Losses and tokens must be equal to the bit, and what is in use while both
sleep must not grow. With several ranks an all_reduce after each wake shows that NCCL goes on.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="no-any-return"

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import gmlake
import machine
from gpu.ranks import run_ranks

_WAYS = ("never", "sleeps")
_TELL_ROUNDS = 10


@dataclass(frozen=True)
class Size:
    """Of the model and its batches: 0.94 billion parameters in `full`."""

    layers: int
    width: int
    heads: int
    vocab: int
    window: int
    tokens: int


_SIZES = {
    "full": Size(layers=16, width=2048, heads=16, vocab=32_000, window=128, tokens=32),
    "tiny": Size(layers=2, width=64, heads=2, vocab=100, window=16, tokens=4),
}


class Model(nn.Module):
    """A transformer without dropout; [batch, window] tokens to logits of the next ones."""

    def __init__(self, size: Size) -> None:
        """Make the weights on the default device."""
        super().__init__()
        self.embed = nn.Embedding(size.vocab, size.width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                size.width, size.heads, 4 * size.width, 0.0, batch_first=True, norm_first=True
            )
            for _ in range(size.layers)
        )
        self.out = nn.Linear(size.width, size.vocab, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits [batch, window, vocab]."""
        x = self.embed(tokens)
        with sdpa_kernel(SDPBackend.MATH):  # its backward pass has one order of sums
            for layer in self.layers:
                x = layer(x, src_mask=mask)
        return self.out(x)


class Loop:
    """The two models, and what puts them to sleep."""

    def __init__(self, size: Size, *, sleeps: bool) -> None:
        """Make both, the same each time."""
        self.size, self.sleeps = size, sleeps
        self.mask = nn.Transformer.generate_square_subsequent_mask(
            size.window, device=torch.device("cuda")
        )
        torch.manual_seed(0)
        with self.training(), torch.device("cuda"):
            self.model = Model(size)
            if dist.is_initialized():
                from torch.distributed.fsdp import fully_shard

                for layer in self.model.layers:
                    fully_shard(layer)
                fully_shard(self.model)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        with self.writing(), torch.device("cuda"):
            self.writer = Model(size).requires_grad_(requires_grad=False)
            self.tokens = torch.zeros(1, size.window, dtype=torch.long)
        self.graph = torch.cuda.CUDAGraph()
        self.logits: Tensor | None = None

    def training(self) -> AbstractContextManager[object]:
        """Return the region of weights and optimizer, where there are any."""
        return gmlake.region("train", backup="cpu") if self.sleeps else nullcontext()

    def writing(self) -> AbstractContextManager[object]:
        """Return the region of the model that generates, and of its graph."""
        return gmlake.region("generate", graphs=True) if self.sleeps else nullcontext()

    def turn(self, call: str, name: str) -> float:
        """Put a region to sleep, or wake it; return the seconds."""
        if not self.sleeps:
            return 0.0
        began = time.perf_counter()
        getattr(gmlake, call)(name)
        return time.perf_counter() - began

    def train(self, number: int) -> float:
        """Train a step on a batch of that number; return the loss of all ranks."""
        rank = dist.get_rank() if dist.is_initialized() else 0
        batches = torch.Generator("cuda").manual_seed(number * 64 + rank)
        shape = (4, self.size.window)
        batch = torch.randint(self.size.vocab, shape, device="cuda", generator=batches)
        logits = self.model(batch[:, :-1], self.mask[:-1, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        with self.training():
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if dist.is_initialized():
            dist.all_reduce(loss.detach())
        return float(loss.item())

    def copy_weights(self) -> None:
        """Let the writer have the trained weights."""
        with torch.no_grad():
            pairs = zip(self.writer.parameters(), self.model.parameters(), strict=True)
            for mine, trained in pairs:
                whole = trained.full_tensor() if hasattr(trained, "full_tensor") else trained
                mine.copy_(whole)

    def write(self) -> list[int]:
        """Generate tokens by the graph, which is captured at the first time."""
        self.tokens.copy_(torch.arange(self.size.window).remainder(self.size.vocab)[None])
        if self.logits is None:
            with self.writing(), torch.no_grad():
                self.writer(self.tokens, self.mask)
                torch.cuda.synchronize()
                with torch.cuda.graph(self.graph):
                    self.logits = self.writer(self.tokens, self.mask)
        written = []
        for _ in range(self.size.tokens):
            self.graph.replay()
            written.append(int(self.logits[0, -1].argmax().item()))
            moved = self.tokens[:, 1:].clone()
            self.tokens[:, :-1].copy_(moved)
            self.tokens[:, -1].fill_(written[-1])
        return written


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run the loop; return losses, tokens, what was in use with both asleep, and seconds."""
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.cuda.set_device(int(os.environ.get("RANK", "0")))
    if options.ranks > 1:
        dist.init_process_group(options.backend)
    gmlake.enable()
    loop = Loop(_SIZES[options.size], sleeps=way == "sleeps")
    losses, tokens, asleep, turns = [], [], [], []
    began = time.perf_counter()
    for number in range(options.rounds):
        if number % _TELL_ROUNDS == 0 and os.environ.get("RANK", "0") == "0":
            print(f"{way}: {number} rounds, {time.perf_counter() - began:.1f} s", file=sys.stderr)
        turning = loop.turn("wake", "train") if number else 0.0
        losses.append(loop.train(number).hex())
        turning += loop.turn("wake", "generate") if number else 0.0
        loop.copy_weights()
        turning += loop.turn("sleep", "train")
        tokens.append(loop.write())
        turning += loop.turn("sleep", "generate")
        torch.cuda.empty_cache()
        asleep.append(machine.used_bytes())
        turns.append(turning)
    seconds = time.perf_counter() - began
    if options.ranks > 1:
        dist.destroy_process_group()
    return {
        "losses": losses,
        "tokens": tokens,
        "asleep_bytes": asleep,
        "grown_bytes": max(asleep[5:], default=asleep[-1]) - asleep[min(5, len(asleep) - 1)],
        "turn_seconds": turns,
        "seconds": seconds,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def ask(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the first rank of a way measured, the most of all ranks, or `failed`."""
    words = [
        *("--one", way, "--rounds", str(options.rounds), "--size", options.size),
        *("--ranks", str(options.ranks), "--backend", options.backend),
    ]
    found = run_ranks(["gpu.loop", *words], options.ranks, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    failed = [
        f"rank {rank}: {told['failed']}" for rank, told in enumerate(found) if "failed" in told
    ]
    if failed:
        return {"failed": ", ".join(failed)}
    most: dict[str, Any] = {
        name: [max(each) for each in zip(*(told[name] for told in found), strict=True)]
        for name in ("asleep_bytes", "turn_seconds")
    }
    most["grown_bytes"] = max(told["grown_bytes"] for told in found)
    has_one_result = all(
        told[name] == found[0][name] for told in found for name in ("losses", "tokens")
    )
    return {**found[0], **most, "has_one_result": has_one_result}


def compare(ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return whether ways and ranks agree, and by how much what stays has grown since round 5."""
    if any("failed" in told for told in ways.values()):
        return {}
    never, sleeps = ways["never"], ways["sleeps"]
    return {
        "has_same_losses": never["losses"] == sleeps["losses"],
        "has_same_tokens": never["tokens"] == sleeps["tokens"],
        "has_one_result": all(told["has_one_result"] for told in ways.values()),
        "grown_bytes": sleeps["grown_bytes"],
    }


def main() -> int:
    """Run both ways, print, and keep it with --write or --output; 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=1, help="processes, a GPU each (1)")
    parser.add_argument("--backend", default="nccl", help="of torch.distributed (nccl)")
    parser.add_argument("--size", choices=_SIZES, default="full")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_loop.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    ways = {way: ask(way, options) for way in _WAYS}
    found = compare(ways)
    table = Table("loop", "rounds", "seconds", "asleep MiB", "last loss")
    for way, told in ways.items():
        if "failed" in told:
            table.add_row(way, told["failed"])
            continue
        last = float.fromhex(told["losses"][-1])
        held = told["asleep_bytes"][-1] >> 20
        table.add_row(way, str(options.rounds), f"{told['seconds']:.1f}", str(held), f"{last:.6f}")
    Console(width=120).print(table, found)
    figures = {"rounds": options.rounds, "ranks": options.ranks, "size": options.size, **found}
    figures["ways"] = {
        way: {name: each for name, each in told.items() if name != "tokens"}
        for way, told in ways.items()
    }
    if options.write or options.output:
        gpu = machine.devices_of(ways)
        print(machine.write("gpu_loop", figures, path=options.output, gpu=gpu))
    agree = ("has_same_losses", "has_same_tokens", "has_one_result")
    return int(not (found and all(found[name] for name in agree)))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
