"""What a function makes of known values on the CPU, once it is asked for; what else is assumed.

A function whose operands are all known is done on the CPU as well, by PyTorch itself. Random
numbers are drawn there. Of what is not known, choices and comparisons are assumed (asked.py).
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake.standin import asked
from gmlake.standin.asked import ASSUMED, Certainty
from gmlake.standin.values import (
    MOST_ELEMENTS,
    Later,
    UnknownError,
    certainty,
    forget,
    keep,
    known,
    later_of,
    mapped,
)

if TYPE_CHECKING:
    from gmlake.standin.values import Function, Given, Named


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


MADE: Final = names(
    "arange as_tensor asarray eye full full_like linspace logspace new_tensor ones ones_like "
    "scalar_tensor tensor tril_indices triu_indices zeros zeros_like new_full new_ones new_zeros "
    "rand randint randn randperm"
)

COPIED: Final = names("__deepcopy__ cuda cpu to")
"""Functions to be left alone on the CPU: they may name a device, by number too."""


_OF_DATA: Final = names("as_tensor asarray new_tensor tensor")
"""Functions whose operand a program may change afterwards."""

_LIKE: Final = names(
    "full_like new_full new_ones new_zeros ones_like rand_like randint_like randn_like zeros_like"
)
"""Functions that take no more than the shape and type of their first operand."""

_CHOOSING: Final = names(
    "argmax argmin argsort cummax cummin kthvalue max median min mode multinomial sort topk"
)
"""Functions that find places of numbers."""

_FINITE: Final = {
    "isfinite": True,
    **dict.fromkeys(("isinf", "isnan", "isneginf", "isposinf"), False),
}
"""What holds of numbers that kernels would compute."""

_RANDOM: Final = ("bernoulli", "dropout", "multinomial", "normal", "poisson", "rand", "rrelu")

_OVERWRITING: Final = names(
    "bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ uniform_ "
    "zero_"
)
"""Functions after which a tensor has nothing of what it had."""


def plain(function: Function, given: Given, named: Named) -> Any:
    """Call a function that changes nothing, and of whose result nothing is known."""
    return function(*given, **named)


def writing(function: Function, given: Given, named: Named) -> Any:
    """Call a function that may change any of its operands."""
    forget((*given, *named.values()))
    return function(*given, **named)


def following(function: Function, given: Given, named: Named) -> Any:
    """Call a function that changes nothing, unless it is told to by `out`."""
    if "out" in named:
        forget([named["out"]])
        return function(*given, **named)
    return with_values(function, given, named, function(*given, **named))


def changing(function: Function, given: Given, named: Named, foreseen: Given | None = None) -> Any:
    """Change a tensor in place; it stays known if what it is changed by is known.

    foreseen: what to call the function with, where that is something else.
    """
    of = given[0]
    name = getattr(function, "__name__", "")
    if type(of) is not torch.Tensor:
        return writing(function, given, named)
    if not of.is_cuda:  # what is brought back
        if name in {"copy_", "__setitem__"}:
            given = tuple(each if known(each) is None else known(each) for each in given)
        return function(*given, **named)
    later, base = _changed(function, name, given, named), of._base
    before = None if base is None else later_of(base)
    forget([of, named.get("out")])
    made = function(*(foreseen or given), **named)
    if later is not None:
        keep(of, later)
    if later is not None and base is not None and before is not None and base.is_contiguous():
        place = of.size(), of.stride(), of.storage_offset() - base.storage_offset()
        keep(base, _to_be(_written, (before, later, place), {}))
    return made


def _changed(function: Function, name: str, given: Given, named: Named) -> Later | None:
    """Return what a tensor will be after it is changed in place, None if that is not known."""
    of: torch.Tensor = given[0]
    if of.numel() > MOST_ELEMENTS or of.requires_grad:
        return None
    try:
        if name in _OVERWRITING:
            before: Any = Later(partial(torch.empty, of.shape, dtype=of.dtype))
        else:
            before = _there(of)
        return _to_be(partial(_change, function), (before, *given[1:]), named)
    except UnknownError:
        return None


def _change(function: Function, of: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
    values = of.clone()
    with _drawing(getattr(function, "__name__", "")):
        function(values, *others, **named)
    return values


def _written(before: torch.Tensor, part: torch.Tensor, place: tuple[Any, ...]) -> torch.Tensor:
    values = before.clone()
    values.as_strided(*place).copy_(part)
    return values


def number_of(value: Any) -> Any:
    """Return the number that a known tensor is, if it is one; PyTorch would read the device."""
    is_number = type(value) is torch.Tensor and value.is_cuda and value.dim() == 0
    values = known(value) if is_number else None
    if values is None:
        return value
    asked.note(asked.ROWS, certainty(value), "a count")
    value.item()  # PyTorch waits for the device here
    return values.item()


def with_values(function: Function, given: Given, named: Named, made: Any) -> Any:
    """Return the result, with its values if these follow from known ones, or may be assumed."""
    parts = made if isinstance(made, (tuple, list)) else (made,)
    worth = [(place, part) for place, part in enumerate(parts) if _is_worth(part)]
    later = follow(function, given, named, parts[0]) if worth else None
    for place, part in worth:
        if later is None:
            _assume_of(function, given, named, part)
        elif parts is made:
            keep(part, _to_be(getitem, (later, place), {}))
        else:
            keep(part, later)
    return made


def _is_worth(made: Any) -> bool:
    is_ours = type(made) is torch.Tensor and made.is_cuda and not made.requires_grad
    return is_ours and made.numel() <= MOST_ELEMENTS


def _got(value: Any) -> Any:
    made = value.get() if isinstance(value, Later) else value
    if made is None and value is not None:
        raise UnknownError
    return made


def _assume_of(function: Function, given: Given, named: Named, made: torch.Tensor) -> None:
    """Assume what is made of unknown numbers: a choice among them, or a comparison."""
    name = getattr(function, "__name__", "")
    if name in _FINITE:
        keep(made, Later(partial(torch.full, made.shape, _FINITE[name])))
    elif made.dtype is torch.bool:
        keep(made, Later(partial(guessed, made.shape, made.dtype), Certainty.GUESSED))
    elif name in _CHOOSING and made.dtype is torch.int64 and isinstance(given[0], torch.Tensor):
        make = partial(_chosen, function, given[0].shape, given[1:], named, made.shape)
        keep(made, Later(make, Certainty.CHOSEN))


# Of the elements that a mask of unknown values selects.
SHARES: Final = {"even": 0.5, "most": 1.0, "least": 0.0}


def guessed(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return a mask of unknown numbers; a single comparison does not hold."""
    share = SHARES[ASSUMED] if shape or ASSUMED == "most" else 0.0
    return (torch.rand(shape, generator=_fixed()) < share).to(dtype)


def _chosen(
    function: Function, of: torch.Size, given: Given, named: Named, shape: torch.Size
) -> Any:
    """Return places among numbers: of random ones, or of some that fall in each row."""
    width = of[-1] if of else 1
    if of.numel() > MOST_ELEMENTS:
        return torch.randint(width, shape, generator=_fixed())
    if ASSUMED == "most":
        numbers = torch.arange(width, 0.0, -1.0).expand(of)
    else:
        numbers = torch.rand(of, generator=_fixed())
    with _drawing(getattr(function, "__name__", "")):
        made = function(numbers, *given, **named)
    return made if isinstance(made, torch.Tensor) else made[1]


def _fixed() -> torch.Generator:
    """Return random numbers that are the same each time, so that steps are alike."""
    return torch.Generator("cpu").manual_seed(0)


_random_state: torch.Tensor | None = None


@contextmanager
def _drawing(name: str) -> Iterator[None]:
    """Draw random numbers of the device, if a function of this name does; the CPU's stay."""
    global _random_state  # noqa: PLW0603 (of the process)
    if name not in _OVERWRITING and not any(each in name for each in _RANDOM):
        yield
        return
    before = torch.get_rng_state()
    if _random_state is not None:
        torch.set_rng_state(_random_state)
    try:
        yield
    finally:
        _random_state = torch.get_rng_state()
        torch.set_rng_state(before)


def follow(function: Function, given: Given, named: Named, made: Any = None) -> Later | None:
    """Return what a function will make of known values on the CPU, None if one is not known."""
    name = getattr(function, "__name__", "")
    if "empty" in name:
        return None
    try:
        if name in _LIKE and given and isinstance(given[0], torch.Tensor):
            shape_alone = torch.empty((), dtype=given[0].dtype, device="cpu").expand(given[0].shape)
            given = (Later(shape_alone), *given[1:])  # as it is: no copy of so many elements
        if name in COPIED:
            return _to_be(torch.Tensor.to, (given[0], made.dtype), {})
        later = _to_be(partial(_work, function), given, named)
    except UnknownError:
        return None
    if name in _OF_DATA:
        later.get()
    return later


def _work(function: Function, *given: Any, **named: Any) -> Any:
    name = getattr(function, "__name__", "")
    if name in MADE:
        named["device"] = "cpu"
    with _drawing(name):
        made = function(*given, **named)
    return made.clone() if name in _OF_DATA else made


def _to_be(make: Function, given: Given, named: Named) -> Later:
    """Return what a function will make of these on the CPU. Raises UnknownError."""
    operands = [mapped(_there, each) for each in given]
    others = {name: mapped(_there, each) for name, each in named.items()}
    waiting: list[Later] = []
    mapped(
        lambda each: waiting.append(each) if isinstance(each, Later) else None,
        [operands, list(others.values())],
    )
    certain = max((each.certainty for each in waiting), default=Certainty.KNOWN)
    depth = 1 + max((each.depth for each in waiting), default=0)
    return Later(partial(_made, make, operands, others), certain, depth)


def _made(make: Function, operands: list[Any], others: Named) -> Any:
    ready = {name: mapped(_got, each) for name, each in others.items()}
    return make(*mapped(_got, operands), **ready)


def _there(value: Any) -> Any:
    """Return an argument as the same function on the CPU takes it. Raises UnknownError.

    A long list is not looked into: if it has tensors, nothing is known of it.
    """
    if isinstance(value, torch.Tensor):
        later = later_of(value) if value.is_cuda else None
        is_ours = type(value) is torch.Tensor and value.numel() <= MOST_ELEMENTS
        if not is_ours or (later is None and value.is_cuda):
            raise UnknownError
        return later or Later(value.detach().clone())
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], torch.Tensor):
        raise UnknownError
    if isinstance(value, (torch.device, str)) and str(value).startswith("cuda"):
        return "cpu"
    return None if isinstance(value, torch.Generator) else value
