"""CUDA graphs that take turns: no two run at the same time, so they share temporary memory."""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import sys
import threading
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from gmlake import _core
from gmlake.errors import Error
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
            watch(number, self._name)
        return number


@dataclass(eq=False)
class _Run:
    """A replay that may still be under way."""

    graph: _Graph
    stream: torch.cuda.Stream
    end: torch.cuda.Event


@dataclass(eq=False)
class _Turn:
    """All graphs of a name, and the last replay on each device."""

    name: str
    count: int = 0
    last: dict[int, _Run] = field(default_factory=dict)


@dataclass(eq=False)
class _Graph:
    number: int  # the core's
    turn: _Turn
    name: str
    device: int


_lock = threading.Lock()  # one replay is checked and launched at a time
_turns: dict[int, _Turn] = {}
_graphs: WeakKeyDictionary[Any, _Graph] = WeakKeyDictionary()
_replaced: list[Any] = []


def watch(number: int, name: str) -> None:
    """Check graphs of that turn from now on, those whose captures end on threads inside of it."""
    with _lock:
        _turns.setdefault(number, _Turn(name))
        if not _replaced:
            _replace_methods()


def _replace_methods() -> None:
    """Put the checks around a graph's methods. Never undone: graphs outlive every session."""
    end, replay = torch.cuda.CUDAGraph.capture_end, torch.cuda.CUDAGraph.replay
    _replaced.extend((end, replay))

    def capture_end(graph: torch.cuda.CUDAGraph) -> None:
        end(graph)
        _enter(graph, sys._getframe(1))  # noqa: SLF001

    def checked_replay(graph: torch.cuda.CUDAGraph) -> None:
        known = _graphs.get(graph)
        if known is None:
            replay(graph)
            return
        stream = torch.cuda.current_stream(known.device)
        with _lock:
            _check(known, stream)
            _core.torch_spoil_graph(known.number, stream.cuda_stream)
            replay(graph)
            ended = torch.cuda.Event()
            ended.record(stream)
            known.turn.last[known.device] = _Run(known, stream, ended)

    torch.cuda.CUDAGraph.capture_end = capture_end  # type: ignore[method-assign, assignment]
    torch.cuda.CUDAGraph.replay = checked_replay  # type: ignore[method-assign, assignment]


def _enter(graph: torch.cuda.CUDAGraph, frame: FrameType | None) -> None:
    """Take up a graph that was captured just now, if it takes turns and is to be checked."""
    number = _core.torch_last_graph()
    with _lock:
        turn = _turns.get(_core.torch_turn())
        if turn is None or not number:
            _graphs.pop(graph, None)
            return
        turn.count += 1
        name = f"graph {turn.count} of {turn.name!r} ({_place(frame)})"
        _graphs[graph] = _Graph(number, turn, name, torch.cuda.current_device())


def _place(frame: FrameType | None) -> str:
    """Where the program captured it: its innermost frame outside of PyTorch."""
    while frame is not None and frame.f_back is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in {"torch", "gmlake", "contextlib"}:
            break
        frame = frame.f_back
    return "unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _check(graph: _Graph, stream: torch.cuda.Stream) -> None:
    """Refuse a replay that would run beside the last one. Raises Error.

    Work queued on both streams tells: if that of this stream can end while the last replay has not,
    nothing makes this stream wait for it.
    """
    last = graph.turn.last.get(graph.device)
    if last is None or last.stream == stream or last.end.query():
        return
    here = torch.cuda.Event()
    here.record(stream)
    while not here.query():
        if last.end.query():
            return
    if not last.end.query():
        raise Error(
            f"{graph.name} was about to run while {last.graph.name} still runs on another stream: "
            "they take turns, so one must wait for the other"
        )
