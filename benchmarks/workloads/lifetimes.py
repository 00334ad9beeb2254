"""Lifetimes of one training step of a mixture of experts, of any number of requests.

A pipeline stage runs micro-batches one forward, one backward, with a few of them in flight. Each
layer has attention, whose tensors are of a few sizes, and experts, which get a number of tokens
that differs from expert to expert and from micro-batch to micro-batch. Forward keeps most tensors
for backward, which frees them in the reverse order; gradients live to the end.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gmlake.planner.plan_layout import LIFETIME

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.trace.layout import Records

LAYERS = 12
EXPERTS = 8
IN_FLIGHT = 4
HIDDEN_BYTES = 4096
TOKENS = 2048


@dataclass
class _Stage:
    """The step as it happens: requests so far, and those that backward will free."""

    chosen: random.Random
    sizes: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    time: int = 0

    def allocate(self, size_bytes: int) -> int:
        """Begin a life and return its number."""
        self.sizes.append(size_bytes)
        self.starts.append(self.time)
        self.ends.append(0)
        self.time += 1
        return len(self.sizes) - 1

    def free(self, number: int) -> None:
        """End it."""
        self.ends[number] = self.time
        self.time += 1

    def use(self, size_bytes: int) -> None:
        """Need something for a moment."""
        self.free(self.allocate(size_bytes))

    def forward(self, layer_count: int) -> list[list[int]]:
        """Return what each layer keeps for backward."""
        return [self._forward_layer() for _ in range(layer_count)]

    def _forward_layer(self) -> list[int]:
        hidden = TOKENS * HIDDEN_BYTES
        kept = [self.allocate(hidden * part) for part in (1, 3, 1, 1)]
        self.use(4 * hidden)
        kept.append(self.allocate(hidden // 16))
        left = 2 * TOKENS
        for expert in range(EXPERTS):
            rest = left // (EXPERTS - expert)
            tokens = min(left, self.chosen.randrange(rest // 2, rest + rest // 2 + 1))
            left -= tokens
            rows = max(tokens, 1) * HIDDEN_BYTES
            kept += [self.allocate(rows), self.allocate(2 * rows)]
            self.use(2 * rows)
        kept.append(self.allocate(hidden))
        return kept

    def backward(self, layers: list[list[int]]) -> None:
        """Free what a forward kept, last first, with gradients on the way."""
        carried = self.allocate(TOKENS * HIDDEN_BYTES)
        for kept in reversed(layers):
            for number in reversed(kept):
                gradient = self.allocate(self.sizes[number])
                self.free(number)
                self.free(gradient)
            following = self.allocate(TOKENS * HIDDEN_BYTES)
            self.free(carried)
            carried = following
        self.free(carried)


def mixture_of_experts(count: int, seed: int = 0) -> Records:
    """Return exactly `count` lifetimes, the same for the same arguments."""
    # The same each time, not secret.
    stage = _Stage(random.Random(seed))  # noqa: S311
    gradients = [stage.allocate(48 << 20) for _ in range(min(LAYERS, count))]
    flying: list[list[list[int]]] = []
    while len(stage.sizes) < count:
        flying.append(stage.forward(LAYERS))
        if len(flying) == IN_FLIGHT:
            stage.backward(flying.pop(0))
    while flying:
        stage.backward(flying.pop(0))
    for number in gradients:
        stage.free(number)
    return _cut(stage, count)


def _cut(stage: _Stage, count: int) -> Records:
    """Leave out the shortest lives at even distances until `count` are left."""
    starts, ends = np.array(stage.starts), np.array(stage.ends)
    order = np.argsort(ends - starts, kind="stable")
    surplus = len(starts) - count
    candidates = np.sort(order[: max(2 * surplus, 1)])
    kept = np.ones(len(starts), np.bool_)
    kept[candidates[::2][:surplus]] = False
    result = np.zeros(count, LIFETIME)
    result["size_bytes"] = np.array(stage.sizes)[kept]
    result["start"], result["end"] = starts[kept], ends[kept]
    return result


def read_instance(path: Path) -> Records:
    """Return the lifetimes of a CSV with the columns lower, upper and size, plain or gzip."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        header = [name.strip() for name in file.readline().split(",")]
        columns = [header.index(name) for name in ("lower", "upper", "size")]
        table = np.loadtxt(file, np.int64, delimiter=",", usecols=columns, ndmin=2)
    lifetimes = np.zeros(len(table), LIFETIME)
    lifetimes["start"] = table[:, 0] - table[:, 0].min()
    lifetimes["end"] = table[:, 1] - table[:, 0].min()
    lifetimes["size_bytes"] = table[:, 2]
    return lifetimes
