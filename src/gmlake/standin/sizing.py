"""Functions whose results have as many rows as values say, and masks and numbers as an index."""

# mypy: allow-untyped-calls

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake.standin import asked
from gmlake.standin.asked import ASSUMED, Certainty
from gmlake.standin.results import (
    SHARES,
    changing,
    follow,
    following,
    guessed,
    number_of,
    with_values,
)
from gmlake.standin.values import MOST_ELEMENTS, Later, certainty, keep, known, later_of, mapped

if TYPE_CHECKING:
    from gmlake.standin.values import Function, Given, Named


def sizing(function: Function, given: Given, named: Named) -> Any:
    """Call a function whose result has as many rows as known values say."""
    of: Any = given[0] if given else next(iter(named.values()), None)
    is_whole = type(of) is not torch.Tensor or not of.is_cuda or "out" in named
    if is_whole or (function is torch.where and len(given) + len(named) > 1):
        return following(function, given, named)
    name = _NAMES.get(function, function.__name__)
    if name == "masked_select":
        mask = given[1] if len(given) > 1 else named["mask"]
        shape = torch.broadcast_shapes(of.shape, mask.shape)
        mask = following(torch.broadcast_to, (mask, shape), {})
        return of.expand(shape)[_rows(mask, name, of.device)]
    made = function(*given, **named)  # for what it takes on its way
    if later_of(of) is None and name in {"bincount", "one_hot"} and (given[1:] or named):
        return made
    _assume(of, name)
    later = follow(function, given, named)
    values, certain = (None, Certainty.UNKNOWN) if later is None else (later.get(), later.certainty)
    asked.note(asked.ROWS, certain if values is not None else Certainty.UNKNOWN, name)
    return made if values is None else _sent(values, of.device, certain)


# Functions that have another name of their own.
_NAMES: Final = {torch.unique: "unique", torch.unique_consecutive: "unique_consecutive"}


def _assume(of: torch.Tensor, name: str) -> None:
    """Assume the values of a tensor that decide how many rows there are, if they are not known."""
    if known(of) is not None or of.numel() > MOST_ELEMENTS:
        return
    if name.startswith("unique"):
        alike = {"most": 1, "even": 2}.get(ASSUMED, max(of.numel(), 1))
        make: Any = (torch.arange(of.numel(), device="cpu") // alike).reshape(of.shape)
    else:
        make = partial(guessed, of.shape, of.dtype)
    keep(of, Later(make, Certainty.GUESSED))


def _rows(mask: Any, name: str, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the indices of what a mask selects, as PyTorch makes them from one."""
    if not isinstance(mask, torch.Tensor):
        return torch.tensor(mask, device="cpu").nonzero().to(device).unbind(1)
    _assume(mask, name)
    values = known(mask)
    asked.note(asked.ROWS, Certainty.UNKNOWN if values is None else certainty(mask), name)
    if values is None:
        rows = int(mask.numel() * SHARES[ASSUMED])
        return torch.empty((rows, mask.dim()), dtype=torch.int64, device=device).unbind(1)
    return tuple(values.nonzero().to(device).unbind(1))


def _sent(values: Any, device: torch.device, certain: Certainty) -> Any:
    if isinstance(values, (tuple, list)):
        return type(values)(_sent(each, device, certain) for each in values)
    made = values.to(device)
    keep(made, Later(values, certain))
    return made


def indexing(function: Function, given: Given, named: Named) -> Any:
    """Index a tensor, by masks too."""
    of, index = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return function(*given, **named)
    made = function(of, _foreseen(index, of.device), **named)
    return with_values(function, given, named, made)


def assigning(function: Function, given: Given, named: Named) -> Any:
    """Assign to parts of a tensor, of masks too."""
    of, index, value = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return changing(function, given, named)
    is_one = not isinstance(value, torch.Tensor) or value.numel() == 1  # PyTorch needs no rows then
    foreseen = _foreseen(index, None if is_one else of.device)
    return changing(function, given, named, (of, foreseen, value))


def _foreseen(index: Any, device: torch.device | None) -> Any:
    """Return an index of numbers, and of rows on the device, for what the device would be read."""
    parts = index if type(index) is tuple else (index,)
    if not any(isinstance(part, (torch.Tensor, slice, list)) for part in parts):
        return index
    made: list[Any] = []
    for part in parts:
        if type(part) is slice:
            made.append(mapped(number_of, part))
        elif device is not None and _is_mask(part):
            made.extend(_rows(part, "a mask as an index", device))
        else:
            made.append(part)
    return tuple(made)


def _is_mask(part: Any) -> bool:
    if isinstance(part, torch.Tensor):
        return part.is_cuda and part.dim() > 0 and part.dtype in (torch.bool, torch.uint8)
    return type(part) is list and bool(part) and all(type(each) is bool for each in part)


def repeating(function: Function, given: Given, named: Named) -> Any:
    """Repeat elements as often as known numbers say; PyTorch would read these to check them."""
    of, repeats, dim = _repeats(*given, **named)
    times = of if repeats is None else repeats
    if not isinstance(of, torch.Tensor) or not isinstance(times, torch.Tensor) or not of.is_cuda:
        return following(function, given, named)
    asked.note(asked.ROWS, certainty(times), "repeat_interleave")
    ones = torch.ones(times.shape, dtype=torch.int64, device="cpu")
    counts = ones if known(times) is None else known(times)
    rows = torch.repeat_interleave(counts)
    if repeats is None:
        return _sent(rows, of.device, certainty(times))
    if dim is None:
        of, dim = of.flatten(), 0
    if times.numel() == 1:
        rows = torch.arange(of.shape[dim], device="cpu").repeat_interleave(counts)
    made = of.index_select(dim, rows.to(of.device))
    return with_values(function, given, named, made)


def _repeats(input: Any = None, repeats: Any = None, dim: Any = None, **_: Any) -> Given:  # noqa: A002
    return input, repeats, dim
