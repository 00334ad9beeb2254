"""What PyTorch knows beyond a trace of objects: whose work a call is, and who holds what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gmlake.trace.layout import Records


class Work(IntFlag):
    """Whose work a call is.

    GRAPH: a backward pass may come back to it. BACKWARD: of one. RETAINS: of one that keeps its
    graph. EQUAL: a copy that lies in memory just as what it was made of.
    """

    GRAPH = 1
    BACKWARD = 2
    RETAINS = 4
    EQUAL = 8


class Holder(IntFlag):
    """Who holds an object.

    Known of models that were called, optimizers that took a step, and gradients that one was given.
    """

    MODEL = 1
    STATE = 2
    GRADIENT = 4


@dataclass(frozen=True, eq=False)
class Notes:
    """What is known beside the records of a trace.

    works: Work of each API. held: Holder of each object. contents: of each object that is made of
    nothing but numbers, the same for the same numbers; else 0. rounds: the APIs at which a model is
    called again, or an optimizer has ended. updates: the APIs at which an optimizer begins.
    """

    works: Records
    held: Records
    contents: Records
    rounds: Records
    updates: Records
