"""Accesses to a tensor's memory that bypass operators: Python, NumPy, kernels by address."""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch

from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES


class Sharing(NamedTuple):
    """How a method accesses memory. role: as of an argument. lasts: until the memory is freed."""

    role: int
    lasts: bool = False


_CHANGING: Final = Sharing(READS | WRITES)
_LASTING: Final = Sharing(TOUCHES, lasts=True)
_BY_ADDRESS: Final = Sharing(TOUCHES)

_METHODS: Final[tuple[tuple[Any, str, Sharing], ...]] = (
    (torch.Tensor, "tolist", Sharing(READS)),
    (torch.Tensor, "map_", _CHANGING),
    (torch.Tensor, "map2_", _CHANGING),
    (torch.Tensor, "apply_", _CHANGING),
    (torch.Tensor, "numpy", _LASTING),
    (torch.Tensor, "__dlpack__", _LASTING),
    (torch.Tensor, "data_ptr", _BY_ADDRESS),
    (torch.UntypedStorage, "data_ptr", _BY_ADDRESS),
)


class Substitutes:
    """Replaces methods of PyTorch's classes, until take_back()."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, kind: Any, name: str, make: Callable[..., Any]) -> None:  # noqa: ANN401
        """Replace a method of a class by make(method)."""
        original = getattr(kind, name)
        is_inherited = name not in vars(kind)
        method = functools.wraps(original)(make(original))

        def take_back() -> None:
            if vars(kind).get(name) is not method:
                return  # another library replaced it by a method that calls this one
            if is_inherited:
                delattr(kind, name)
            else:
                setattr(kind, name, original)

        self._undo.append(take_back)  # before it is there: an interrupt may come in between
        setattr(kind, name, method)

    def take_back(self) -> None:
        """Restore the methods. May be interrupted anywhere; a further call completes it."""
        for take_back in reversed(self._undo):
            take_back()
        self._undo.clear()


def watch(substitutes: Substitutes, note: Callable[[Sharing, str, Any], None]) -> None:
    """Call `note` after each such method with its Sharing, name, and tensor or storage."""
    for kind, name, sharing in _METHODS:
        substitutes.put(kind, name, functools.partial(_noting, name, sharing, note))


def _noting(
    name: str,
    sharing: Sharing,
    note: Callable[[Sharing, str, Any], None],
    original: Callable[..., Any],
) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = original(self, *args, **kwargs)
        note(sharing, name, self)
        return result

    return method
