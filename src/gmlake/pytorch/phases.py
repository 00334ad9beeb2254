"""Where a step is: its phases and its dynamic modules, seen by hooks that leave the model alone.

Phases (forward, backward, optimizer) tell the planner which requests belong together, and the
matcher where it is. Dynamic modules (a mixture of experts) are those whose tensors have other sizes
in each step. Both are known by numbers that are the same in every process: a checksum of the name.

Forward passes are seen by hooks on the model, backward passes by a hook on the autograd node of its
output, so the graph that autograd records stays as it is.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gmlake.pytorch import sites
from gmlake.pytorch.endings import settle_at_exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

DYNAMIC: Final = ("*experts", "*moe", "*MoE", "*MoeBlock", "*MoeMLP", "*SwitchMLP")
"""Names and class names of modules whose sizes change from step to step, as in fnmatch."""

FORWARD: Final = sites.FORWARD
BACKWARD: Final = sites.BACKWARD
OPTIMIZER: Final = sites.OPTIMIZER
BETWEEN: Final = sites.BETWEEN


class Sink(Protocol):
    """Who is told."""

    def enter_phase(self, number: int) -> None:
        """Be in the phase from here on; 0: in none."""

    def enter_scope(self, number: int) -> None:
        """Be in the dynamic module from here on; 0: in none."""


def number_of(name: str, index: int | str | None = None) -> int:
    """Return the number of a phase or scope: above 0, below 2^32, the same in every process."""
    return zlib.crc32(f"{name}/{index}".encode()) or 1


class Hook:
    """A hook, which compilers do not see.

    It stays with its model: a copy, and a file that the model is saved to, have in its place what
    does nothing, and needs no gmlake to be read.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        """Call the function."""
        self._function = function

    def __call__(self, *arguments: object) -> None:
        """Call it, but not while a compiler traces the model."""
        if not torch.compiler.is_compiling():
            self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be nullcontext().__exit__, which takes anything and returns None."""
        return getattr, (nullcontext(), "__exit__")


class Watcher:
    """Watches models and optimizers, and tells a sink what they are at.

    dynamic: patterns of names or class names, and modules, of which each is a scope.
    """

    def __init__(self, sink: Sink, dynamic: Iterable[str | nn.Module] = DYNAMIC) -> None:
        """Watch nothing yet. Raises TypeError."""
        chosen = tuple(dynamic)
        for item in chosen:
            if not isinstance(item, str | nn.Module):
                raise TypeError(f"dynamic has patterns and modules, not {item!r}")
        self._sink = sink
        self._patterns = tuple(item for item in chosen if isinstance(item, str))
        self._marked = [item for item in chosen if isinstance(item, nn.Module)]
        self._known: set[int] = set()  # the modules of watched models
        self._handles: list[RemovableHandle] = []
        self._discovery: list[RemovableHandle] = []
        self._of_step: list[RemovableHandle] = []  # on tensors that may outlive the step
        self._forwards = 0
        self._depth = 0
        self._scopes: list[int] = []
        self._is_open = False

    # ---- what is watched ------------------------------------------------------------------------

    def watch_model(self, model: nn.Module) -> None:
        """Watch the passes of a model, and its dynamic modules. Raises TypeError."""
        if not isinstance(model, nn.Module):
            raise TypeError(f"a model is a torch.nn.Module, not {model!r}")
        if id(model) in self._known or not takes_hooks(model):
            return
        scopes = list(self._dynamic_modules(model))
        self._known.update(map(id, model.modules()))
        self._handles += [
            model.register_forward_pre_hook(Hook(self._forward_begins)),
            model.register_forward_hook(Hook(self._forward_ends), always_call=True),
        ]
        for name, module in scopes:
            self._watch_scope(name, module)

    def watch_optimizers(self) -> None:
        """Watch every optimizer's step()."""
        settle_at_exit()
        self._handles += [
            register_optimizer_step_pre_hook(Hook(self._optimizer_begins)),
            register_optimizer_step_post_hook(Hook(self._optimizer_ends)),
        ]

    def discover_models(self) -> None:
        """Watch every module that a step calls from outside of any other."""
        if not self._discovery:
            self._discovery.append(register_module_forward_pre_hook(Hook(self._discover)))

    def stop_discovery(self) -> None:
        """Stay with the models that were found."""
        _remove(self._discovery)

    def close(self) -> None:
        """Take every hook away."""
        self.end_step()
        self.stop_discovery()
        _remove(self._handles)
        self._known.clear()

    @property
    def has_models(self) -> bool:
        """Whether any model is watched."""
        return bool(self._known)

    # ---- steps ----------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Count passes from 0 again."""
        self._forwards = self._depth = 0
        self._scopes.clear()
        self._is_open = True

    def end_step(self) -> None:
        """Tell nothing until the next step."""
        self._is_open = False
        _remove(self._of_step)

    # ---- phases ---------------------------------------------------------------------------------

    def _phase(self, name: str, index: int | None = None) -> None:
        if self._is_open:
            self._sink.enter_phase(number_of(name, index))

    def _discover(self, module: nn.Module, _inputs: object) -> None:
        is_outermost = self._is_open and self._depth == 0 and not isinstance(module, LOSSES)
        if is_outermost and id(module) not in self._known and takes_hooks(module):
            self.watch_model(module)
            self._forward_begins(module, None)  # the hook just added misses this call

    def _forward_begins(self, _module: nn.Module, _inputs: object) -> None:
        if self._depth == 0:
            self._phase(FORWARD, self._forwards)
        self._depth += 1

    def _forward_ends(self, _module: nn.Module, _inputs: object, output: object) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        index = self._forwards
        self._forwards += 1
        if self._is_open:
            for node in nodes_of(output):
                node.register_prehook(lambda _gradients: self._phase(BACKWARD, index))
        self._phase(BETWEEN, index)

    def _optimizer_begins(self, *_ignored: object) -> None:
        self._phase(OPTIMIZER)

    def _optimizer_ends(self, *_ignored: object) -> None:
        self._phase(BETWEEN, -1)

    # ---- scopes ---------------------------------------------------------------------------------

    def _dynamic_modules(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """Yield the outermost dynamic modules below a model, with their names."""
        outermost: list[str] = []
        for name, module in model.named_modules():
            is_inside = any(name.startswith(f"{outer}.") for outer in outermost)
            if name and not is_inside and self._is_dynamic(name, module):
                outermost.append(name)
                if id(module) not in self._known and takes_hooks(module):
                    yield name, module

    def _is_dynamic(self, name: str, module: nn.Module) -> bool:
        names = (name, type(module).__name__)
        is_named = any(fnmatchcase(text, pattern) for text in names for pattern in self._patterns)
        return is_named or any(module is marked for marked in self._marked)

    def _watch_scope(self, name: str, module: nn.Module) -> None:
        forward, backward = number_of(name, FORWARD), number_of(name, BACKWARD)

        def begins(_module: nn.Module, inputs: object) -> None:
            if self._is_open:
                self._end_backward_scope_at(inputs)
                self._scopes.append(forward)
                self._scope(forward)

        def ends(_module: nn.Module, _inputs: object, output: object) -> None:
            if self._is_open:
                if self._scopes:
                    self._scopes.pop()
                for node in nodes_of(output):
                    node.register_prehook(lambda _gradients: self._scope(backward))
                self._scope(self._scopes[-1] if self._scopes else 0)

        self._handles += [
            module.register_forward_pre_hook(Hook(begins)),
            module.register_forward_hook(Hook(ends), always_call=True),
        ]

    def _end_backward_scope_at(self, inputs: object) -> None:
        """Leave the scope once the gradients of a dynamic module's inputs are known."""
        for tensor in tensors_of(inputs):
            if tensor.requires_grad:
                handle = tensor.register_hook(lambda _gradient: self._scope(0))
                if tensor.is_leaf:
                    self._of_step.append(handle)

    def _scope(self, number: int) -> None:
        if self._is_open:
            self._sink.enter_scope(number)


LOSSES: Final = nn.modules.loss._Loss  # noqa: SLF001 (the only name of what all losses are)


def takes_hooks(module: nn.Module) -> bool:
    """Whether hooks can be put onto a module."""
    return not isinstance(module, torch.jit.ScriptModule)


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


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
    """One use of phase(), from its begin to its end. One that is gone is over, too: hold it weakly.

    name: as given.
    """

    def __init__(self, name: str) -> None:
        """Begin."""
        self.name = name
        self.is_over = False


class Listener(Protocol):
    """Who is told by name, inside of steps and outside of them."""

    def enter_named(self, named: Named) -> None:
        """Be in that phase from here on."""

    def leave_named(self) -> None:
        """Be where the program was before the phase that is over."""

    def step_begins(self) -> None:
        """Be in a step of an AutoPlan."""


_watching: list[Sink] = []  # of the AutoPlans that have an open step
_listeners: list[Listener] = []


def add_listener(listener: Listener) -> None:
    """Tell of phases by name, and of steps."""
    _listeners.append(listener)


def remove_listener(listener: Listener) -> None:
    """Tell no more."""
    if listener in _listeners:
        _listeners.remove(listener)


def add_sink(sink: Sink) -> None:
    """Let phase() tell this sink, too: a step begins."""
    _watching.append(sink)
    for listener in tuple(_listeners):
        listener.step_begins()


def remove_sink(sink: Sink) -> None:
    """Let phase() forget the sink: its step ends."""
    if sink in _watching:
        _watching.remove(sink)


def is_in_step() -> bool:
    """Whether a step of an AutoPlan is open."""
    return bool(_watching)


def remove_sinks() -> None:
    """Let phase() forget every sink."""
    _watching.clear()


@contextmanager
def phase(name: str, *, microbatch: int | None = None) -> Iterator[None]:
    """Mark a phase of the open steps of every AutoPlan, and of a recording.

    `with gmlake.phase("forward", microbatch=3):` marks one.

    For programs whose passes no hook sees, as hand-written pipelines. name: any text. microbatch:
    which one, where a step has several. Marks may differ from step to step; those that come back
    in the same order are where a plan finds its place again. At the end the step is in no phase.
    Does nothing where no step is open and nothing is recorded; recordings know the name only.
    """
    sinks, listeners = tuple(_watching), tuple(_listeners)
    number = number_of(name, microbatch)
    named = Named(str(name))
    try:
        for sink in sinks:
            sink.enter_phase(number)
        for listener in listeners:
            listener.enter_named(named)
        yield
    finally:
        named.is_over = True
        for sink in sinks:
            sink.enter_phase(0)
        for listener in listeners:
            listener.leave_named()
