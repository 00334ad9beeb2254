"""Tracks where each thread of a program is, by hooks on every module and optimizer.

A module's requests carry its name: those of its forward pass, from begin to end, and those of its
backward pass, wherever autograd runs it. To do so, nodes of autograd's graph are assigned to a
module: at its begin, the nodes that made its inputs go to its caller; at its end, the nodes that
made its outputs go to the module, unless they belong to a module inside it. Between two such nodes
the scope of the backward pass does not change.

Nothing here waits for a lock or looks at memory; the graph and the models stay as they are.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gmlake.pytorch import compat, phases
from gmlake.pytorch.phases import BACKWARD, BETWEEN, FORWARD, OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.utils.hooks import RemovableHandle

    from gmlake.pytorch.call_sites import Table

_OWNED: Final = "gmlake"  # the key in a node's metadata that marks it as assigned
_NOTHING: Final = -1  # no backward pass
_WRAPPED: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


_Owner: TypeAlias = "int | weakref.ref[phases.Named]"
"""The id of a module or an optimizer, or a phase that the program marks itself."""


class _Here:
    """The place of one thread. outer: (owner, scope, phase) of everything entered and not left."""

    __slots__ = ("base", "is_worker", "outer", "phase", "scope", "task")

    def __init__(self) -> None:
        self.scope = self.phase = ""
        self.outer: list[tuple[_Owner, str, str]] = []
        self.task = _NOTHING  # the backward pass that this thread works for
        self.is_worker: bool | None = None  # a thread of autograd; None: not known yet
        self.base = 0  # the number of its site, without a call path


class _Local(threading.local):
    """State of each thread."""

    def __init__(self) -> None:
        self.here = _Here()


class Observer:
    """Receives a recording's events beyond places."""

    def model_found(self, model: nn.Module) -> None:
        """A model is seen for the first time."""

    def pass_begins(self, model: nn.Module) -> None:
        """A model is called from outside any other."""

    def optimizer_begins(self, optimizer: Any) -> None:  # noqa: ANN401 (torch has it untyped)
        """An optimizer's step begins: gradients are complete."""

    def optimizer_ends(self, optimizer: Any) -> None:  # noqa: ANN401
        """An optimizer's step ends: its state exists."""


class Tracker:
    """Tells the core where each thread is, while it is on.

    table: where numbers come from. set_site: called in the thread concerned, with the number of its
    place. note_mark: called with the number of a mark when a phase or a step begins.
    """

    def __init__(
        self,
        table: Table,
        set_site: Callable[[int], object],
        note_mark: Callable[[int], object],
        observer: Observer | None = None,
    ) -> None:
        self._table = table
        self._set_site = set_site
        self._note_mark = note_mark
        self._observer = observer or Observer()
        self._local = _Local()
        self._names: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self._has_model = False
        self._handles: list[RemovableHandle] = []
        self._phase = ""  # that was marked last, of the whole process
        self.is_on = False

    # ---- from when to when ----------------------------------------------------------------------

    def start(self) -> None:
        _drop_passes_at_exit()
        self.is_on = True
        self._local.here.is_worker = False
        keep = self._handles.append  # one by one: an interrupt must not lose those before
        keep(register_module_forward_pre_hook(phases.Hook(self._enter)))
        keep(register_module_forward_hook(phases.Hook(self._leave), always_call=True))
        keep(register_optimizer_step_pre_hook(phases.Hook(self._optimizer_begins)))
        keep(register_optimizer_step_post_hook(phases.Hook(self._optimizer_ends)))
        phases.add_listener(self)

    def stop(self) -> None:
        """Stop. Hooks that remain on autograd's graphs do nothing from now on."""
        self.is_on = False
        phases.remove_listener(self)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._names.clear()
        self._set_site(0)

    # ---- names ----------------------------------------------------------------------------------

    def name_model(self, model: nn.Module) -> None:
        """Name the modules of a model: those of a second model begin with its class name."""
        if id(model) in self._names or not phases.takes_hooks(model):
            return
        own = type(_inside(model)).__name__
        prefix = f"{own}." if self._has_model else ""
        self._has_model = True
        for full_name, module in model.named_modules():
            name = _without_wrappers(full_name)
            self._name(module, f"{prefix}{name}" if name else own)
        self._observer.model_found(model)

    def _name(self, module: nn.Module, name: str) -> str:
        key, names = id(module), self._names
        if key not in names:
            names[key] = (weakref.ref(module, lambda _gone: names.pop(key, None)), name)
        return names[key][1]

    def _name_of(self, module: nn.Module, here: _Here, *, is_outermost: bool) -> str:
        known = self._names.get(id(module))
        if known is not None:
            return known[1]
        if is_outermost and not isinstance(module, phases.LOSSES):
            self.name_model(module)
            if id(module) in self._names:
                return self._names[id(module)][1]
        own = type(module).__name__
        return self._name(module, own if is_outermost or not here.scope else f"{here.scope}.{own}")

    # ---- places ---------------------------------------------------------------------------------

    def base(self) -> int:
        """Return the number of the calling thread's place, without a call path."""
        return self._local.here.base

    def _tell(self, here: _Here) -> None:
        here.base = self._table.number_of(here.scope, here.phase)
        self._set_site(here.base)

    def _mark(self, phase: str) -> None:
        if phase != self._phase:
            self._phase = phase
            self._note_mark(self._table.label_number(phase))

    # ---- forward passes -------------------------------------------------------------------------

    def _enter(self, module: nn.Module, inputs: object) -> None:
        here = self._local.here
        if here.is_worker is None:
            here.is_worker = False
        self._leave_ended(here)
        is_outermost = _is_outside(here)
        if is_outermost:
            task = compat.graph_task()
            if task == _NOTHING:
                here.task = _NOTHING  # also where a backward pass failed
            else:  # computed again for a checkpoint
                is_outermost = False
                if task != here.task:
                    self._backward_begins(here, task)
        name = self._name_of(module, here, is_outermost=is_outermost)
        if torch.is_grad_enabled():
            self._own(inputs, here.scope)
        here.outer.append((id(module), here.scope, here.phase))
        here.scope = name
        if is_outermost and not isinstance(module, phases.LOSSES):
            here.phase = FORWARD
            self._mark(FORWARD)
            self._observer.pass_begins(module)
        self._tell(here)

    def _leave(self, module: nn.Module, _inputs: object, output: object) -> None:
        here = self._local.here
        if not _unwind(here, id(module)):
            return  # it was entered before this recording began
        if torch.is_grad_enabled():
            self._own(output, here.scope)
        _, here.scope, phase = here.outer.pop()
        if here.phase != phase:  # the outermost
            here.phase = phase if phase not in ("", BETWEEN, FORWARD, BACKWARD) else BETWEEN
            self._mark(here.phase)
        self._tell(here)

    # ---- backward passes ------------------------------------------------------------------------

    def _own(self, value: object, scope: str) -> None:
        """Make the backward pass enter a scope at the nodes that made these tensors."""
        for node in _makers(value):
            metadata = node.metadata
            if _OWNED not in metadata:
                metadata[_OWNED] = True
                node.register_prehook(partial(self._backward_at, scope))

    def _backward_at(self, scope: str, _gradients: object) -> None:
        if not self.is_on or torch.compiler.is_compiling():
            return
        here = self._local.here
        task = compat.graph_task()
        if task not in (here.task, _NOTHING):
            if here.is_worker and sys._getframe().f_back is None:  # noqa: SLF001
                here.task = _NOTHING  # no pass is around this one: the last of this thread failed
            self._backward_begins(here, task)
        here.scope = scope
        self._tell(here)

    def _backward_begins(self, here: _Here, task: int) -> None:
        if here.is_worker is None:
            here.is_worker = True
        before = (here.scope, here.phase, here.task)
        here.task, here.phase = task, BACKWARD
        self._mark(BACKWARD)
        compat.at_the_end_of_backward(partial(self._backward_ends, here, before))

    def _backward_ends(self, here: _Here, before: tuple[str, str, int]) -> None:
        """Restore the thread's place; autograd's threads stay in the pass, outside modules.

        With several devices, whichever thread is the last calls this for all of them.
        """
        here.scope, here.phase, here.task = before
        if here.is_worker and here.task == _NOTHING:
            here.scope, here.phase = "", BACKWARD
        if not self.is_on:
            return
        if here.task == _NOTHING:
            self._mark(BETWEEN)
        here.base = self._table.number_of(here.scope, here.phase)
        if here is self._local.here:
            self._set_site(here.base)

    # ---- optimizers, steps, phases by name ------------------------------------------------------

    def _optimizer_begins(self, optimizer: Any, *_ignored: object) -> None:  # noqa: ANN401
        here = self._local.here
        self._leave_ended(here)
        if _unwind(here, id(optimizer)):  # its last step failed
            _, here.scope, here.phase = here.outer.pop()
        self._observer.optimizer_begins(optimizer)
        here.outer.append((id(optimizer), here.scope, here.phase))
        here.scope, here.phase = type(optimizer).__name__, OPTIMIZER
        self._mark(OPTIMIZER)
        self._tell(here)

    def _optimizer_ends(self, optimizer: Any, *_ignored: object) -> None:  # noqa: ANN401
        here = self._local.here
        if not _unwind(here, id(optimizer)):
            return
        _, here.scope, phase = here.outer.pop()
        here.phase = phase if phase not in ("", FORWARD, BACKWARD) else BETWEEN
        self._mark(here.phase)
        self._tell(here)
        self._observer.optimizer_ends(optimizer)
        if not phases.is_in_step():
            self._note_mark(self._table.step_number())

    def step_begins(self) -> None:
        """Mark a step that begins."""
        self._leave_ended(self._local.here)
        self._note_mark(self._table.step_number())

    def enter_named(self, named: phases.Named) -> None:
        """Enter a phase that the program marks itself."""
        here = self._local.here
        self._leave_ended(here)
        here.outer.append((weakref.ref(named), here.scope, here.phase))
        here.phase = named.name
        self._mark(here.phase)
        self._tell(here)

    def leave_named(self) -> None:
        """Return to the place before the phase that is over."""
        self._leave_ended(self._local.here)

    def _leave_ended(self, here: _Here) -> None:
        """Leave the program's phase that is over, with everything inside it.

        It is deleted last, so that if an interrupt comes before, the next call repeats this.
        """
        for place, (owner, scope, phase) in enumerate(here.outer):
            if not isinstance(owner, int) and _is_over(owner):
                here.scope, here.phase = scope, phase
                if self.is_on:
                    self._mark(phase or BETWEEN)
                    self._tell(here)
                del here.outer[place:]
                return


def _inside(model: nn.Module) -> nn.Module:
    """Return the model inside all wrappers."""
    while True:
        inner = next(
            (getattr(model, name, None) for name in _WRAPPED if hasattr(model, name)), None
        )
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _without_wrappers(name: str) -> str:
    """Return a module's name without the parts that wrappers added."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def _is_outside(here: _Here) -> bool:
    """Whether the thread is outside all modules; calls by an optimizer count as outside."""
    outer = here.outer
    if not outer or here.phase == OPTIMIZER:
        return True
    return not any(isinstance(owner, int) for owner, _, _ in outer)


def _is_over(owner: weakref.ref[phases.Named]) -> bool:
    """Whether a phase that the program marked is over, or its object is gone."""
    named = owner()
    return named is None or named.is_over


def _unwind(here: _Here, owner: int) -> bool:
    """Drop everything entered inside an owner and never left; False if the owner is not there."""
    outer = here.outer
    if outer and outer[-1][0] == owner:
        return True
    for place in range(len(outer) - 1, -1, -1):
        if outer[place][0] == owner:
            _, here.scope, here.phase = outer[place + 1]
            del outer[place + 1 :]
            return True
    return False


def _makers(value: object) -> Iterator[Any]:
    """Yield autograd's nodes that made the tensors in a value, except leaves."""
    for tensor in phases.tensors_of(value):
        node = tensor.grad_fn
        if node is not None:
            yield node


# ---- the end of the program


@cache
def _drop_passes_at_exit() -> None:
    """Make the threads of PyTorch's backward passes drop our hooks before the interpreter ends.

    A thread drops a pass, with its Python objects, some time after backward() has returned. Before
    CPython 3.14 the process is terminated if that needs the interpreter while it shuts down.
    """
    if sys.version_info < (3, 14):
        atexit.register(_drop_passes)


def _drop_passes() -> None:
    """Run a pass without hooks on each device in use: beginning one drops the last one."""
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        if compat.is_in_use(device):
            with suppress(Exception), torch.inference_mode(mode=False), torch.enable_grad():
                compat.run_backward(torch.ones((), device=f"cuda:{device}", requires_grad=True))
