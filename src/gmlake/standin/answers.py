"""What a program is answered where a kernel would have computed it, and notes of where it asked.

Device memory reads as zeros: a loss is 0, a norm is 0, no number is infinite, so the program goes
on. What is asked of all elements holds: that all are finite, that no token is padding. What depends
on data has no rows. The weights of a model of billions are left as they are on the CPU, since
nobody reads them: to initialise them takes minutes and their memory.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake.standin import values

if TYPE_CHECKING:
    from collections.abc import Callable

_DATA_DEPENDENT: Final = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere")
"""Functions whose result has as many rows as the data say."""

_HOLDS: Final = "_gmlake_holds"
"""An attribute of the tensors on the device that are read as true."""

_COUNT: Final = "_gmlake_count"
"""An attribute of sums: the number of elements, which a mask has where nothing is masked."""

_MOST_INITIALISED: Final = 1 << 30
"""Elements on the CPU that a program may initialise; the weights after these are left out."""

_asked: Counter[tuple[str, str, int]] = Counter()


def install() -> None:
    """Put the notes and the shortcuts into PyTorch; once, for the life of the process."""
    values.install()
    for name in _DATA_DEPENDENT:
        for home in (torch, torch.Tensor):
            if hasattr(home, name):
                setattr(home, name, _noted(name, getattr(home, name)))
    for home in (torch, torch.Tensor):
        vars_of: Any = home
        vars_of.all = _holding(vars_of.all)
        vars_of.sum = _counted(vars_of.sum)
        vars_of.allclose = _true(vars_of.allclose)
        vars_of.equal = _true(vars_of.equal)
    tensor: Any = torch.Tensor
    for name in ("__bool__", "item"):
        setattr(tensor, name, _read(getattr(tensor, name)))
    for name in ("__eq__", "eq"):
        setattr(tensor, name, _compared(getattr(tensor, name)))
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, _left_out(getattr(torch.nn.init, name)))


def given() -> list[dict[str, Any]]:
    """Return where the program asked for what depends on data, the most frequent first."""
    return [
        {"function": name, "file": file, "line": line, "count": count}
        for (name, file, line), count in _asked.most_common()
    ]


def _noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*arguments: Any, **more: Any) -> Any:
        made = function(*arguments, **more)
        is_known = isinstance(made, torch.Tensor) and values.known(made) is not None
        if not is_known and any(
            isinstance(each, torch.Tensor) and each.is_cuda for each in arguments
        ):
            file, line = _caller()
            _asked[name, file, line] += 1
        return made

    return noted


def _holding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction whose result on the device is read as true."""

    @functools.wraps(function)
    def holding(*arguments: Any, **more: Any) -> Any:
        made = function(*arguments, **more)
        if isinstance(made, torch.Tensor) and made.is_cuda and values.known(made) is None:
            setattr(made, _HOLDS, True)
        return made

    return holding


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sum that knows how many elements it is of, unless they have fractions."""

    @functools.wraps(function)
    def counted(*arguments: Any, **more: Any) -> Any:
        made = function(*arguments, **more)
        of: Any = arguments[0] if arguments else None
        is_ours = isinstance(of, torch.Tensor) and isinstance(made, torch.Tensor) and made.is_cuda
        is_mask = is_ours and made.dim() == 0 and not of.is_floating_point()
        if is_mask and values.known(made) is None:
            setattr(made, _COUNT, of.numel())
        return made

    return counted


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison that finds a sum to be that of ones, if that is what is asked."""

    @functools.wraps(function)
    def compared(tensor: Any, other: Any) -> Any:
        made = function(tensor, other)
        count = getattr(tensor, _COUNT, None)
        if count is not None and isinstance(other, int) and other == count:
            setattr(made, _HOLDS, True)
        return made

    return compared


def _read(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reading of a tensor that knows those."""

    @functools.wraps(function)
    def read(tensor: Any) -> Any:
        return True if getattr(tensor, _HOLDS, False) else function(tensor)

    return read


def _true(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison that finds tensors on the device equal where their shapes are."""

    @functools.wraps(function)
    def true(one: Any, other: Any, *arguments: Any, **more: Any) -> Any:
        is_ours = isinstance(one, torch.Tensor) and one.is_cuda
        if is_ours and isinstance(other, torch.Tensor) and one.shape == other.shape:
            pair = values.known(one), values.known(other)
            is_known = all(each is not None for each in pair)
            return function(*pair, *arguments, **more) if is_known else True
        return function(one, other, *arguments, **more)

    return true


def _caller() -> tuple[str, int]:
    """Return the innermost line that is not PyTorch's, nor ours."""
    inside = str(Path(torch.__file__).parent), str(Path(__file__).parent)
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_initialised = 0


def _left_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an initialisation that leaves the rest of a large model on the CPU untouched.

    A small one gets its values, and so the random numbers after them are those of any other run.
    """

    @functools.wraps(function)
    def left_out(tensor: Any, *arguments: Any, **more: Any) -> Any:
        global _initialised  # noqa: PLW0603 (of the process)
        if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
            if _initialised + tensor.numel() > _MOST_INITIALISED:
                return tensor
            _initialised += tensor.numel()
        return function(tensor, *arguments, **more)

    return left_out
