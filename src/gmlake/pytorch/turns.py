"""CUDA graphs that take turns: no two run at the same time, so they share temporary memory."""

from __future__ import annotations

import os
import threading
from contextlib import ContextDecorator
from typing import TYPE_CHECKING

from gmlake import _core
from gmlake.pytorch import turn_checks
from gmlake.pytorch.inside import require_served

if TYPE_CHECKING:
    from typing_extensions import Self

CHECK_VARIABLE = "GMLAKE_CHECK_TURNS"

_lock = threading.Lock()
_numbers: dict[str, int] = {}


class graphs_take_turns(_core.Turn, ContextDecorator):  # noqa: N801 (it is used as a function)
    """Capture CUDA graphs that never run at the same time into the memory of the largest.

    A server that captures a graph for each batch size replays one of them at a time, yet each holds
    its temporary tensors for itself. Of graphs captured inside, in any order, in one pool or many,
    temporary memory is physically the same, under addresses of each graph's own. What lives when a
    capture ends, such as outputs and static inputs, is shared with nothing:

        with gmlake.graphs_take_turns("decode"):
            for batch in (1, 2, 4, 8):
                graphs[batch] = capture(batch)

    The program promises that graphs of one name never run at the same time on a device, be it by
    one stream or by waiting, and that none expects to find in its temporary memory what it left
    there, or what another one did: there is whatever ran last. Graphs of other names share nothing
    with these.

    It applies to graphs whose capture begins on the thread that enters it, and can be a decorator.
    Graphs that torch.compile records (`reduce-overhead`) and those in a torch.cuda.MemPool that
    serves other work too take no turns. Captures inside come one after the other: beginning one
    while another is in progress on the device raises RuntimeError.

    name: of these graphs; the same name means the same memory. check: makes replays find out where
    the promise is broken, which costs much time. Before each replay the temporary memory is filled
    with bytes of 0xFF, which are NaN to floating point; and a replay while another graph of that
    name still runs raises gmlake.Error with the names of both. GMLAKE_CHECK_TURNS=1 in the
    environment checks all.

    Raises ValueError for an empty name; entering it RuntimeError where gmlake does not serve.
    """

    def __init__(self, name: str, *, check: bool = False) -> None:
        if not name:
            raise ValueError("graphs that take turns need a name, such as 'decode'")
        self._name = name
        self._check = check

    def _recreate_cm(self) -> Self:
        return type(self)(self._name, check=self._check)

    def number(self) -> int:
        """Return the number by which the core knows the name. Raises RuntimeError."""
        require_served("graphs_take_turns")
        with _lock:
            number = _numbers.setdefault(self._name, len(_numbers) + 1)
        if self._check or os.environ.get(CHECK_VARIABLE, "0") not in {"", "0"}:
            turn_checks.watch(number, self._name)
        return number
