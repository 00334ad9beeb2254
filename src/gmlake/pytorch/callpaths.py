"""Call paths of requests: taken in Python, right before PyTorch runs an operator."""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import overrides

from gmlake.pytorch import compat

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
        super().__init__()
        self._table = table
        self._base = base
        self._set_site = set_site
        self._depth = depth
        self._is_on = False

    def start(self) -> None:
        """See what the calling thread does from here on."""
        self._is_on = True
        self._settle()

    def stop(self) -> None:
        """See nothing any more; from another thread than start(), it stays in place, idle."""
        self._is_on = False
        self._settle()

    def _settle(self) -> None:
        """Be among the modes of this thread while on, below them: each ends by taking the top.

        Leave none that is idle: PyTorch takes a mode off while that runs, and an interrupt may
        have put one back late.
        """
        modes = compat.function_modes()
        wanted = [mode for mode in modes if mode is not self and not _is_idle(mode)]
        if self._is_on:  # that of torch.set_default_device() has to stay at the bottom
            wanted.insert(1 if wanted and wanted[0] is compat.default_device_mode() else 0, self)
        if wanted == modes:
            return
        try:
            compat.set_function_modes(wanted)
        except BaseException:  # an interrupt, which must not cost the program its own modes
            compat.set_function_modes(wanted)
            raise

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


def _is_idle(mode: object) -> bool:
    return isinstance(mode, CallPaths) and not mode._is_on  # noqa: SLF001


_CHEAP = frozenset(("__get__", "__set__"))  # attributes, which ask for no memory
