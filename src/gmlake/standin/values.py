"""Small values on the device, as they would be: what a program made, copied there and changed.

Kernels compute nothing on the stand-in, but a program often asks the device for what it knew
before: how long a sequence is, whether a mask masks anything, how wide a layer is. A function whose
operands are all known is done on the CPU as well, and the result is kept beside the tensor, until
the tensor is changed in place. What random numbers or weights go into is not known.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _device

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_ELEMENTS: Final = 1 << 18
"""Of a tensor whose values are kept."""

_KNOWN: Final = "_gmlake_known"

_MADE: Final = "arange as_tensor eye full full_like linspace ones ones_like tensor zeros zeros_like"
_CHANGED: Final = (
    "__add__ __and__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __invert__ __le__ __lt__ "
    "__mod__ __mul__ __ne__ __neg__ __or__ __pow__ __radd__ __rand__ __rfloordiv__ __rmul__ "
    "__ror__ __rpow__ __rsub__ __rtruediv__ __sub__ __truediv__ __xor__ abs add all amax amin "
    "any argmax argmin bincount bitwise_and bitwise_not bitwise_or bool broadcast_to cat ceil "
    "clamp clone contiguous cos cuda cumsum detach diff div divide double eq exp exp2 expand "
    "flatten flip float floor floor_divide gather ge gt index_select int isin le log log10 "
    "log2 logical_and logical_not logical_or long lt masked_fill max maximum mean min minimum "
    "movedim mul multiply narrow ne neg outer permute pow prod reciprocal remainder repeat "
    "reshape roll round rsqrt searchsorted select sign sin sort sqrt square squeeze stack sub "
    "sum t tanh to transpose tril tril_indices triu triu_indices trunc type unsqueeze view "
    "where"
)
_COPIED: Final = ("cuda", "to")
"""Functions to be left alone on the CPU: they may name a device, by number too."""

_READ: Final = "__bool__ __float__ __index__ __int__ cpu item numpy tolist"
_AS_MANY_AS_KNOWN: Final = "argwhere masked_select nonzero unique unique_consecutive"


def install() -> None:
    """Have PyTorch's functions keep what is known; once, for the life of the process."""
    # PyTorch lists what a default device applies to, by function, once: as they are.
    getattr(_device, "_device_constructors", list)()
    tensor: Any = torch.Tensor
    for name in _CHANGED.split():
        for home in (torch, tensor):
            if callable(getattr(home, name, None)):  # torch.long is a type
                setattr(home, name, _keeping(getattr(home, name)))
    for name in _MADE.split():
        setattr(torch, name, _keeping(getattr(torch, name)))
    for name in _READ.split():
        setattr(tensor, name, _reading(getattr(tensor, name)))
    for name in _AS_MANY_AS_KNOWN.split():
        for home in (torch, tensor):
            if hasattr(home, name):
                setattr(home, name, _sizing(getattr(home, name)))


def known(value: Any) -> Any:
    """Return a tensor of the CPU with the same values; None if they are not known."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return value
    if value.is_inference():  # these do not count their changes
        return None
    version, kept = getattr(value, _KNOWN, (-1, None))
    return kept if version == value._version else None


def keep(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Keep the values of a tensor on the device."""
    if not tensor.is_inference():
        setattr(tensor, _KNOWN, (tensor._version, values))


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def keeping(*arguments: Any, **more: Any) -> Any:
        made = function(*arguments, **more)
        if type(made) is torch.Tensor and not torch.compiler.is_compiling():
            return _kept(function, arguments, more, made)
        return made

    return keeping


def _kept(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    more: dict[str, Any],
    made: torch.Tensor,
) -> torch.Tensor:
    """Return the result, with its values if these follow from known ones."""
    if made.is_cuda:
        if made.numel() <= MOST_ELEMENTS and not made.requires_grad:
            values = _on_the_cpu(function, arguments, more)
            if type(values) is torch.Tensor and values.shape == made.shape:
                keep(made, values.to(made.dtype, copy=True))  # of what the program may change
        return made
    of = arguments[0] if arguments else None
    if isinstance(of, torch.Tensor) and of.is_cuda:  # brought back
        values = known(of)
        return made if values is None else values.to(made.dtype).clone()
    return made


def _on_the_cpu(
    function: Callable[..., Any], arguments: tuple[Any, ...], more: dict[str, Any]
) -> Any:
    """Return what a function makes of known values on the CPU, None if one is not known."""
    try:
        given = [_there(each) for each in arguments]
        if function.__name__ in _COPIED:
            return given[0]
        named = {name: _there(each) for name, each in more.items()}
        if not _has_tensor(arguments):
            named["device"] = "cpu"  # what is made from nothing
        with torch.no_grad():
            return function(*given, **named)
    except (_UnknownError, RuntimeError, TypeError, ValueError, IndexError):
        return None


def _has_tensor(arguments: tuple[Any, ...]) -> bool:
    lists = [each for each in arguments if type(each) in (tuple, list)]
    return any(isinstance(each, torch.Tensor) for few in (arguments, *lists) for each in few)


class _UnknownError(Exception):
    """An operand whose values are not known."""


def _there(value: Any) -> Any:
    """Return an argument as the same function on the CPU takes it. Raises _UnknownError."""
    if isinstance(value, torch.Tensor):
        values = known(value)
        if values is None or value.numel() > MOST_ELEMENTS or type(value) is not torch.Tensor:
            raise _UnknownError
        return values
    if isinstance(value, (torch.device, str)) and str(value).startswith("cuda"):
        return "cpu"
    if type(value) in (tuple, list):
        return type(value)(_there(each) for each in value)
    return value


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def reading(tensor: Any, *arguments: Any, **more: Any) -> Any:
        if type(tensor) is torch.Tensor and tensor.is_cuda and not torch.compiler.is_compiling():
            values = known(tensor)
            if values is not None:
                function(tensor, *arguments, **more)  # PyTorch waits for the device here
                return function(values.clone(), *arguments, **more)  # the program may change it
        return function(tensor, *arguments, **more)

    return reading


def _sizing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose result has as many rows as known values say."""

    @functools.wraps(function)
    def sizing(*arguments: Any, **more: Any) -> Any:
        of = arguments[0] if arguments else None
        if type(of) is torch.Tensor and of.is_cuda and not torch.compiler.is_compiling():
            values = _on_the_cpu(function, arguments, more)
            if type(values) is torch.Tensor:
                made = values.to(of.device)
                keep(made, values)
                return made
        return function(*arguments, **more)

    return sizing
