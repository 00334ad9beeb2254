"""Named phases, steps by owner, and their listeners; helpers for hooks on models."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch import nn

from gmlake.pytorch import call_sites

if TYPE_CHECKING:
    from collections.abc import Callable


FORWARD: Final = call_sites.FORWARD
BACKWARD: Final = call_sites.BACKWARD
OPTIMIZER: Final = call_sites.OPTIMIZER
BETWEEN: Final = call_sites.BETWEEN


class Hook:
    """A hook that compilers do not see.

    Copies of the model, and files that it is saved to, contain a function in its place that does
    nothing, and that loads without gmlake.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> None:
        """Call it, but not while a compiler traces the model."""
        if not torch.compiler.is_compiling():
            self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process does nothing: this takes any arguments and returns None.
        return getattr, (nullcontext(), "__exit__")


LOSSES: Final = nn.modules.loss._Loss  # noqa: SLF001 (the only name of what all losses are)


def takes_hooks(module: nn.Module) -> bool:
    """Whether hooks can be put onto a module."""
    return not isinstance(module, torch.jit.ScriptModule)


def tensors_of(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested sequences and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)


def nodes_of(value: object) -> list[Any]:
    """Return the autograd nodes that made the tensors of an output, each once."""
    nodes = {id(node): node for tensor in tensors_of(value) if (node := tensor.grad_fn)}
    return list(nodes.values())


class Named:
    """One use of phase(), from begin to end. A collected one is over, too: reference it weakly.

    name: as given.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False


class Listener(Protocol):
    """Receives named phases and steps."""

    def enter_named(self, named: Named) -> None:
        """Enter a phase."""

    def leave_named(self) -> None:
        """Return to the place before the phase that is over."""

    def step_begins(self) -> None:
        """A step begins."""


_steps: list[object] = []  # the owners of open steps
_listeners: list[Listener] = []


def add_listener(listener: Listener) -> None:
    """Notify a listener of named phases and of steps."""
    _listeners.append(listener)


def remove_listener(listener: Listener) -> None:
    """Stop notifying a listener."""
    if listener in _listeners:
        _listeners.remove(listener)


def begin_step(owner: object) -> None:
    """Tell the listeners that a step begins."""
    _steps.append(owner)
    for listener in tuple(_listeners):
        listener.step_begins()


def end_step(owner: object) -> None:
    """End the owner's step, if one is open."""
    if owner in _steps:
        _steps.remove(owner)


def is_in_step() -> bool:
    """Whether a step is open."""
    return bool(_steps)


def end_steps() -> None:
    """End all open steps."""
    _steps.clear()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark a phase of a recording, as in `with gmlake.phase("forward"):`.

    For programs whose passes no hook sees, such as hand-written pipelines. name: any text. At the
    end the previous phase continues. Does nothing while nothing is recorded.
    """
    listeners = tuple(_listeners)
    named = Named(str(name))
    try:
        for listener in listeners:
            listener.enter_named(named)
        yield
    finally:
        named.is_over = True
        for listener in listeners:
            listener.leave_named()
