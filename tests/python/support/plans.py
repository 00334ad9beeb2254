"""Traces that repeat a step of training."""

from __future__ import annotations

import numpy as np

from gmlake.trace import Trace
from gmlake.trace.layout import REQUEST, Kind

KIB = 1 << 10
MIB = 1 << 20


class Script:
    """A trace, written down event by event."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, int, int, int]] = []
        self.ids = 0

    def alloc(self, size: int, stream: int = 0) -> int:
        self.rows.append((self.ids, size, 0, 0, stream, Kind.ALLOC, 0))
        self.ids += 1
        return self.ids - 1

    def free(self, number: int) -> None:
        self.rows.append((number, 0, 0, 0, 0, Kind.FREE, 0))

    def event(self, kind: Kind) -> None:
        self.rows.append((0, 0, 0, 0, 0, kind, 0))

    def trace(self, **fields: object) -> Trace:
        trace = Trace(np.array(self.rows, REQUEST), **fields)  # type: ignore[arg-type]
        trace.check()
        return trace


def train(script: Script, *, layers: int = 12, kept: list[int] | None = None) -> list[int]:
    """One step: activations up, down again, and gradients that live into the next step."""
    activations = []
    for _ in range(layers):
        work = script.alloc(300 * KIB)
        activations.append(script.alloc(2 * MIB))
        activations.append(script.alloc(3 * MIB))
        script.free(work)
    for number in kept or []:
        script.free(number)
    loss = script.alloc(7 * KIB)
    gradients = []
    for _ in range(layers):
        work = script.alloc(500 * KIB)
        gradients.append(script.alloc(1 * MIB))
        script.free(activations.pop())
        script.free(activations.pop())
        script.free(work)
    script.free(loss)
    for _ in range(layers):
        script.free(script.alloc(900 * KIB))
    return gradients


def training(steps: int, *, keeps: bool = True) -> Script:
    """Steps whose gradients live into the next one, or end with theirs unless it `keeps`."""
    script = Script()
    for _ in range(20):
        script.alloc(1 * MIB)
    kept: list[int] = []
    for _ in range(steps):
        kept = train(script, kept=kept)
        if not keeps:
            for number in kept:
                script.free(number)
            kept = []
    return script
