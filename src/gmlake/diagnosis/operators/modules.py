"""Follows a program's modules and optimizers: their names, and where each thread is."""

# mypy: allow-untyped-calls

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

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

from gmlake.pytorch import compat

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_NO_PASS: Final = -1
_LOSSES: Final = nn.modules.loss._Loss  # noqa: SLF001 (the only name of what all losses are)
_WRAPPED: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""The names under which wrappers keep the module inside them."""


class Observer(Protocol):
    """Receives what a program's models and optimizers do."""

    def model_found(self, model: nn.Module) -> None:
        """A model is seen for the first time."""

    def pass_begins(self, model: nn.Module) -> None:
        """A model is called from outside any other."""

    def optimizer_begins(self, optimizer: Any) -> None:  # noqa: ANN401 (torch has it untyped)
        """An optimizer's step begins: gradients are complete."""

    def optimizer_ends(self, optimizer: Any) -> None:  # noqa: ANN401
        """An optimizer's step ends: its state exists."""


class _Here(threading.local):
    """The modules that a thread is in, each with its name; an optimizer is at the bottom."""

    def __init__(self) -> None:
        self.within: list[tuple[int, str]] = []


class Modules:
    """Tells an observer of models and optimizers, while it is on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._here = _Here()
        self._names: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self._has_model = False
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Start. If this fails, call stop()."""
        keep = self._handles.append  # one by one: an interrupt must not lose those before
        keep(register_module_forward_pre_hook(_uncompiled(self._enter)))
        keep(register_module_forward_hook(_uncompiled(self._leave), always_call=True))
        keep(register_optimizer_step_pre_hook(_uncompiled(self._optimizer_begins)))
        keep(register_optimizer_step_post_hook(_uncompiled(self._optimizer_ends)))

    def stop(self) -> None:
        """Stop."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._names.clear()

    def scope(self) -> str:
        """Return the module that the calling thread is in; "backward" in a backward pass."""
        within = self._here.within
        if within:
            return within[-1][1]
        return "" if compat.graph_task() == _NO_PASS else "backward"

    def name_model(self, model: nn.Module) -> None:
        """Name the modules of a model: those of a second model begin with its class name."""
        if id(model) in self._names or isinstance(model, torch.jit.ScriptModule):
            return
        own = type(_inside(model)).__name__
        prefix = f"{own}." if self._has_model else ""
        self._has_model = True
        for full_name, module in model.named_modules():
            name = ".".join(part for part in full_name.split(".") if part not in _WRAPPED)
            self._name(module, f"{prefix}{name}" if name else own)
        self._observer.model_found(model)

    def _name(self, module: nn.Module, name: str) -> str:
        key, names = id(module), self._names
        if key not in names:
            names[key] = (weakref.ref(module, lambda _gone: names.pop(key, None)), name)
        return names[key][1]

    def _enter(self, module: nn.Module, _inputs: object) -> None:
        within = self._here.within
        is_outermost = not within and compat.graph_task() == _NO_PASS
        if is_outermost and not isinstance(module, _LOSSES):
            self.name_model(module)
            self._observer.pass_begins(module)
        own = type(module).__name__
        around = within[-1][1] if within else ""
        known = self._names.get(id(module))
        name = known[1] if known else self._name(module, f"{around}.{own}" if around else own)
        within.append((id(module), name))

    def _leave(self, module: nn.Module, _inputs: object, _output: object) -> None:
        self._unwind(id(module))

    def _optimizer_begins(self, optimizer: Any, *_ignored: object) -> None:  # noqa: ANN401
        self._observer.optimizer_begins(optimizer)
        self._here.within[:] = [(id(optimizer), type(optimizer).__name__)]

    def _optimizer_ends(self, optimizer: Any, *_ignored: object) -> None:  # noqa: ANN401
        self._unwind(id(optimizer))
        self._observer.optimizer_ends(optimizer)

    def _unwind(self, owner: int) -> None:
        """Leave an owner, and everything inside it that was never left."""
        within = self._here.within
        for place in range(len(within) - 1, -1, -1):
            if within[place][0] == owner:
                del within[place:]
                return


def _uncompiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that does nothing while a compiler traces the program."""

    def called(*arguments: object) -> None:
        if not torch.compiler.is_compiling():
            hook(*arguments)

    return called


def _inside(model: nn.Module) -> nn.Module:
    """Return the model inside all wrappers."""
    while True:
        inner = next(
            (getattr(model, name, None) for name in _WRAPPED if hasattr(model, name)), None
        )
        if not isinstance(inner, nn.Module):
            return model
        model = inner
