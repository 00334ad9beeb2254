"""Call paths of requests: taken in Python, right before PyTorch runs an operator."""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.pytorch.sites import Table


class CallPaths(overrides.TorchFunctionMode):
    """Sets the site of the calling thread to the call path of each PyTorch function that it calls.

    table: where numbers come from. base: returns the number of where the thread is. set_site: tells
    the core. depth: how many frames to keep.

    It sees one thread, the one that starts it, and no code that a compiler made.
    """

    def __init__(
        self,
        table: Table,
        base: Callable[[], int],
        set_site: Callable[[int], object],
        depth: int,
    ) -> None:
        """See nothing yet."""
        super().__init__()
        self._table = table
        self._base = base
        self._set_site = set_site
        self._depth = depth
        self._thread = 0
        self._is_on = False

    def start(self) -> None:
        """See what the calling thread does from here on."""
        self._is_on = True
        self._thread = threading.get_ident()
        self._enter_stack()

    def stop(self) -> None:
        """See nothing any more; from another thread than start(), it stays in place, idle."""
        if not self._is_on:
            return
        self._is_on = False
        if threading.get_ident() == self._thread:
            self._leave_stack()

    def _enter_stack(self) -> None:
        """Go below the modes that are there: each takes away what is on top as it ends."""
        count = torch._C._len_torch_function_stack()  # noqa: SLF001
        above: list[Any] = [overrides._pop_mode() for _ in range(count)]  # noqa: SLF001
        if above and above[-1] is _default_device():  # it has to stay at the bottom
            overrides._push_mode(above.pop())  # noqa: SLF001
        self.__enter__()
        for mode in reversed(above):
            overrides._push_mode(mode)  # noqa: SLF001

    def _leave_stack(self) -> None:
        """Leave, also where modes that began later are still there."""
        later: list[Any] = []
        with suppress(IndexError, RuntimeError):
            while (mode := overrides._pop_mode()) is not self:  # noqa: SLF001
                later.append(mode)
        for mode in reversed(later):
            overrides._push_mode(mode)  # noqa: SLF001

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 (PyTorch's own signature)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call the function from the place that calls it."""
        arguments = kwargs or {}
        is_cheap = getattr(func, "__name__", "") in _CHEAP  # a program's own may have none
        if not self._is_on or is_cheap or torch.compiler.is_compiling():
            return func(*args, **arguments)
        number = self._table.number_at(self._base(), sys._getframe(1), self._depth)  # noqa: SLF001
        self._set_site(number)
        try:
            return func(*args, **arguments)
        finally:
            self._set_site(self._base())


def _default_device() -> Any:  # noqa: ANN401 (torch's own, without a type)
    """Return the mode of torch.set_default_device(); None where there is none."""
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    return getattr(context, "device_context", None)


_CHEAP = frozenset(("__get__", "__set__"))  # attributes, which ask for no memory
