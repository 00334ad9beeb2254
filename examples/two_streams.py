#!/usr/bin/env python3
"""Two trainings take turns on one GPU, each on its own stream, and lend each other memory.

    python examples/two_streams.py               # PyTorch's own allocator
    python examples/two_streams.py --gmlake      # gmlake, whose streams lend each other memory
    python examples/two_streams.py --alone       # gmlake, whose streams do not

While one training goes forward and fills memory, the other goes backward and lets go of it.
PyTorch keeps what one stream frees for that stream; gmlake lets the other have it, after a wait
where one is needed. On a machine without a GPU run it on the stand-in, where memory and streams
behave as on a device and kernels compute nothing:

    python -m gmlake.standin --capacity 80GiB examples/two_streams.py --gmlake
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

try:
    import torch
    from torch import Tensor, nn
except ImportError as problem:
    sys.exit(f"two_streams: {problem}; install it with: pip install torch")

import gmlake
from gmlake.pytorch import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIB = 1 << 20
ALONE = {
    "reuse_allow_opportunistic": 0,
    "reuse_allow_internal_dependencies": 0,
}
"""The settings that keep every stream's memory to itself."""


class Training:
    """A stack of layers that is trained one layer at a time, on a stream of its own."""

    def __init__(self, layers: int, width: int, rows: int) -> None:
        """Make everything on the training's stream."""
        self.stream = torch.cuda.Stream()
        self.shape = (rows, width)
        with torch.cuda.stream(self.stream), torch.device("cuda"):
            self.layers = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(layers)
            )
            self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=0.01, foreach=True)
        self.kept: list[tuple[Tensor, Tensor]] = []

    def forward(self) -> Iterator[None]:
        """Go up through the layers; each keeps what it needs to come back."""
        made = torch.randn(self.shape, device="cuda")
        for layer in self.layers:
            given = made.detach().requires_grad_()
            made = layer(given)
            self.kept.append((given, made))
            yield

    def backward(self) -> Iterator[None]:
        """Come down again, letting go of what was kept, and take a step."""
        gradient: Tensor | None = torch.ones(self.shape, device="cuda")
        while self.kept:
            given, made = self.kept.pop()
            made.backward(gradient)
            gradient = given.grad
            del given, made
            yield
        self.optimizer.step()
        self.optimizer.zero_grad()

    def advance(self, way: Iterator[None]) -> bool:
        """Go one layer further; False at the end."""
        with torch.cuda.stream(self.stream):
            return next(way, way) is not way


def take_turns(up: Training, down: Training) -> None:
    """Let one training go forward while the other goes backward."""
    ways = (down.backward(), up.forward())
    while any([down.advance(ways[0]), up.advance(ways[1])]):
        pass


def run(options: argparse.Namespace, session: Session | None) -> dict[str, float]:
    """Train both; return sizes in MiB, and what the streams lent each other in a step."""
    first, second = (Training(options.layers, options.width, options.rows) for _ in range(2))
    way = first.forward()
    while first.advance(way):
        pass
    before: dict[str, int] = {}
    for step in range(options.steps):
        if step == options.steps - 1 and session is not None:
            before = session.stats()
        take_turns(second, first)
        take_turns(first, second)
    torch.cuda.synchronize()
    told = {
        "live_mib": torch.cuda.max_memory_allocated() / MIB,
        "reserved_mib": torch.cuda.max_memory_reserved() / MIB,
    }
    if session is not None:
        after = session.stats()
        told["borrowed_mib"] = (after["borrowed_bytes"] - before["borrowed_bytes"]) / MIB
        told["waits"] = after["cross_stream_waits"] - before["cross_stream_waits"]
    return told


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Two trainings take turns and lend each other memory.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--gmlake", action="store_true", help="streams lend each other memory")
    chosen.add_argument("--alone", action="store_true", help="gmlake, but they do not")
    parser.add_argument("--layers", type=_positive, default=16)
    parser.add_argument("--width", type=_positive, default=1024)
    parser.add_argument("--rows", type=_positive, default=8192, help="of a batch")
    parser.add_argument("--steps", type=_positive, default=6)
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("two_streams: PyTorch sees no GPU; see the docstring for the stand-in")
    session = None
    if options.gmlake or options.alone:
        knobs: dict[str, Any] = dict(ALONE) if options.alone else {}
        session = gmlake.enable(**knobs)
    told = run(options, session)
    if options.json:
        json.dump(told, sys.stdout)
        return 0
    print(f"live at the peak      {told['live_mib']:10.1f} MiB")
    print(f"reserved at the peak  {told['reserved_mib']:10.1f} MiB")
    if session is not None:
        print(f"lent in a step        {told['borrowed_mib']:10.1f} MiB, {told['waits']} waits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
