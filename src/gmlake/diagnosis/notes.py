"""PyTorch's knowledge beyond a trace of objects: the kind of each call, and what holds objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gmlake.trace.layout import Records


class Work(IntFlag):
    """The part of training that a call belongs to.

    GRAPH: recorded for a backward pass. BACKWARD: part of one. RETAINS: part of one that keeps its
    graph. EQUAL: a copy with the same layout in memory as its source.
    """

    GRAPH = 1
    BACKWARD = 2
    RETAINS = 4
    EQUAL = 8


class Holder(IntFlag):
    """What holds an object.

    Known for models that were called, optimizers that took a step, and the gradients they used.
    """

    MODEL = 1
    STATE = 2
    GRADIENT = 4


@dataclass(frozen=True, eq=False)
class Notes:
    """Facts beside the records of a trace.

    works: Work of each API. held: Holder of each object. contents: of each object that is made of
    nothing but numbers, the same for the same numbers; else 0. rounds: the APIs at which a model is
    called again, or an optimizer has ended. updates: the APIs at which an optimizer begins.
    """

    works: Records
    held: Records
    contents: Records
    rounds: Records
    updates: Records
