"""Small values on the device, as they would be: what a program made, copied there and changed.

Kernels compute nothing on the stand-in, but a program often asks the device for what it knew
before: how long a sequence is, whether a mask masks anything, how wide a layer is. A function whose
operands are all known is done on the CPU as well, and the result is kept beside the tensor, until
its memory changes. What random numbers or weights go into is not known.

Memory changes by functions that end in an underscore, by assignment, by `out`, and by what raises
the tensor's version. Who asks for an address, a storage or `data` may write unseen: what is known
of that memory is forgotten. A C++ extension that takes addresses in C++, and raises no version, is
overlooked, and so is what other threads than the program's first one make.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from gmlake.standin import private

if TYPE_CHECKING:
    Function = Callable[..., Any]
    Given = tuple[Any, ...]
    Named = dict[str, Any]

MOST_ELEMENTS: Final = 1 << 18
"""Of a tensor whose values are kept."""

_MADE: Final = (
    "arange as_tensor asarray eye full full_like linspace logspace new_tensor ones ones_like "
    "scalar_tensor tensor tril_indices triu_indices zeros zeros_like"
)
_CHANGED: Final = (
    "__add__ __and__ __eq__ __floordiv__ __ge__ __gt__ __invert__ __le__ __lshift__ __lt__ "
    "__mod__ __mul__ __ne__ __neg__ __or__ __pow__ __radd__ __rand__ __rdiv__ __rfloordiv__ "
    "__rlshift__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ "
    "__rtruediv__ __rxor__ __sub__ __truediv__ __xor__ abs add all amax amin aminmax any "
    "argmax argmin argsort bfloat16 bitwise_and bitwise_not bitwise_or bitwise_xor bool "
    "broadcast_to bucketize byte cat ceil chunk clamp clip clone concat concatenate contiguous "
    "cos count_nonzero cummax cummin cumprod cumsum deg2rad detach diag diagonal diff div "
    "divide double eq exp exp2 expand expand_as flatten flip float float_power floor "
    "floor_divide fmod gather ge greater greater_equal gt half hstack index_select int "
    "isfinite isin isinf isnan kthvalue le less less_equal log log10 log2 logical_and "
    "logical_not logical_or logical_xor long lt masked_fill max maximum mean median min "
    "minimum mode movedim msort mul multiply nan_to_num narrow ne neg negative not_equal outer "
    "permute positive pow prod ravel reciprocal remainder repeat reshape roll round rsqrt rsub "
    "scatter searchsorted select short sign sin sort split split_with_sizes sqrt square "
    "squeeze stack sub subtract sum swapaxes swapdims t take take_along_dim tensor_split tile "
    "to topk transpose tril triu true_divide trunc type type_as unbind unflatten unsqueeze "
    "view view_as vstack where"
)
_COPIED: Final = "__deepcopy__ cuda cpu to"
"""Functions to be left alone on the CPU: they may name a device, by number too."""

_READ: Final = (
    "__array__ __bool__ __complex__ __contains__ __float__ __format__ __index__ __int__ "
    "item numpy tolist"
)
_AS_MANY_AS_KNOWN: Final = "argwhere bincount masked_select nonzero unique unique_consecutive where"
"""Functions whose result has as many rows as the values say; `where`, of one operand."""

_NOT_MADE: Final = "empty new_empty rand randint randn randperm"
"""Functions that take sizes, and nothing is known of their results."""

_SHAPED: Final = (
    "chunk expand narrow new_full new_ones new_zeros repeat reshape roll select split "
    "split_with_sizes tensor_split tile topk unflatten view"
)
"""Functions of which all operands but the first are sizes, places and numbers."""

_CHANGES: Final = (
    "add_ bitwise_and_ bitwise_or_ clamp_ copy_ div_ fill_ floor_divide_ logical_and_ "
    "logical_not_ logical_or_ masked_fill_ mul_ neg_ pow_ remainder_ sub_ zero_"
)
"""Functions after which all of the tensor is known again, if their operands are."""

_EXPOSED: Final = (
    "__cuda_array_interface__ __dlpack__ data data_ptr share_memory_ storage untyped_storage"
)
"""What lets a program write to memory unseen."""


class _Known(NamedTuple):
    """What is kept of a tensor, and when that was true."""

    of: weakref.ref[torch.Tensor]
    version: int
    address: int
    changes: int
    values: torch.Tensor


_known: dict[int, _Known] = {}
"""By the identity of the tensor: an attribute would be copied and saved with it."""

_changes: Counter[int] = Counter()
"""How often memory was seen to change, by the address of its storage."""

_calls: dict[Any, Callable[[Function, Given, Named], Any]] = {}
"""How to call a function."""


def install() -> None:
    """List what is done with PyTorch's functions."""
    homes: tuple[Any, ...] = (torch, torch.Tensor)
    for names, call in (
        (_CHANGED, _following),
        (_MADE, _making),
        (_COPIED, _copying),
        (_READ, _reading),
        (_AS_MANY_AS_KNOWN, _sizing),
        (_CHANGES, _changing),
        (_NOT_MADE, _leaving),
        (_SHAPED, _shaping),
        (_EXPOSED, _exposing),
        ("__getitem__", _indexing),
        ("__setitem__", _assigning),
        ("repeat_interleave", _repeating),
    ):
        for name in names.split():
            for home in homes:
                found = getattr(home, name, None)
                if isinstance(found, (property, types.GetSetDescriptorType)):
                    _calls[found.__get__] = call
                elif callable(found) and not isinstance(found, type):
                    _calls[found] = call
    tensor: Any = torch.Tensor
    for found in (tensor.requires_grad_, tensor.detach_, tensor.grad.__set__):
        _calls[found] = plain
    _calls[tensor.requires_grad.__set__] = plain
    _calls[tensor.data.__set__] = _replacing
    _calls[torch.nn.functional.one_hot] = _sizing
    _calls[torch.nn.functional.pad] = _following


def call(function: Function, given: Given, named: Named) -> Any:
    """Call a function of PyTorch's and keep what is known of its result.

    Functions that it calls are not seen: what PyTorch hands here has left the mode.
    """
    return way(function)(function, given, named)


def way(function: Function) -> Callable[[Function, Given, Named], Any]:
    """Return how to call a function."""
    found = _calls.get(function)
    if found is None:
        found = _calls[function] = _unlisted(function)
    return found


def touches(values: Iterable[Any]) -> bool:
    """Whether one of the values, or an element of a list of them, is a tensor on the device."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                return True
        elif isinstance(value, (tuple, list)):
            # Long ones are data: all of one kind.
            if value and touches(value if len(value) <= _LONG else value[:1]):
                return True
        elif type(value) is slice and touches((value.start, value.stop, value.step)):
            return True
    return False


_LONG: Final = 256


def from_the_host(
    way: Callable[[Function, Given, Named], Any], function: Function, given: Given, named: Named
) -> Any:
    """Call a function without operands on the device, as it is called anywhere.

    way: how it would be called with some; of what goes to the device the values are kept.
    """
    made = function(*given, **named)
    if way in (_copying, _making) and type(made) is torch.Tensor and made.is_cuda:
        return _with_values(function, given, named, made)
    return made


def known(value: Any) -> Any:
    """Return a tensor of the CPU with the same values, not to be changed; None if not known."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return value
    kept = _known.get(id(value))
    if kept is None or kept[1:4] != _state(value):
        return None
    return kept.values


def keep(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Keep the values of a tensor on the device."""
    state = _state(tensor)
    if state is None or torch.cuda.is_current_stream_capturing():  # a replay writes unseen
        return
    number = id(tensor)
    of = weakref.ref(tensor, lambda _: _known.pop(number, None))
    _known[number] = _Known(of, *state, values)


def _state(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """Return what tells whether a tensor changed, None if nothing does."""
    if tensor.is_inference():  # these do not count their changes
        return None
    try:
        address = tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse, or within torch.func
        return None
    return tensor._version, address, _changes[address]


def lose(tensor: torch.Tensor) -> None:
    """Keep nothing of a tensor, nor a reference to it."""
    _known.pop(id(tensor), None)


def _forget(values: Iterable[Any]) -> None:
    """Forget what is known of the memory of tensors, whoever else looks at it."""
    for value in _tensors(values):
        try:
            _changes[value.untyped_storage().data_ptr()] += 1
        except (NotImplementedError, RuntimeError):
            continue


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors on the device among the values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


# ---- how functions are called


def _unlisted(function: Function) -> Callable[[Function, Given, Named], Any]:
    """Return how to call a function that nothing is known to follow from."""
    name = getattr(function, "__name__", "").partition(".")[0]
    if (name.endswith("_") and not name.endswith("__")) or name == "__set__":
        return _writing
    if name == "__get__":
        return plain
    if isinstance(function, types.FunctionType):
        is_statistical = any(each in name for each in _STATISTICAL)
        return _writing if is_statistical else _watching
    is_pytorchs = isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType))
    is_operator = "pybind" in type(getattr(function, "__self__", None)).__name__
    if not is_pytorchs or is_operator or any(each in name for each in _STATISTICAL):
        return _writing  # an operator of another library's may not say what it changes
    return _passing


_STATISTICAL: Final = ("batch_norm", "instance_norm", "fake_quant", "rrelu")
"""Functions that change statistics without a word."""


def plain(function: Function, given: Given, named: Named) -> Any:
    """Call a function that changes nothing, and of whose result nothing is known."""
    return function(*given, **named)


def _passing(function: Function, given: Given, named: Named) -> Any:
    """Call a function that changes nothing but what is named for its result."""
    if "out" in named:
        _forget([named["out"]])
    return function(*given, **named)


def _writing(function: Function, given: Given, named: Named) -> Any:
    """Call a function that changes its operands."""
    _forget((*given, *named.values()))
    return function(*given, **named)


def _watching(function: Function, given: Given, named: Named) -> Any:
    """Call a function in Python: it may change anything."""
    before = [(each, each._version) for each in _countable((*given, *named.values()))]
    made = function(*given, **named)
    _forget(each for each, version in before if each._version != version)
    return made


def _countable(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    return (each for each in _tensors(values) if not each.is_inference())


def _exposing(function: Function, given: Given, named: Named) -> Any:
    _forget(given)
    return function(*given, **named)


def _replacing(function: Function, given: Given, named: Named) -> Any:
    """Give a tensor the memory of another one."""
    _forget(given)
    made = function(*given, **named)
    lose(given[0])
    return made


def _following(function: Function, given: Given, named: Named) -> Any:
    """Call a function whose result follows from its operands."""
    if "out" in named:
        return _passing(function, given, named)
    return _with_values(function, given, named, function(*given, **named))


def _making(function: Function, given: Given, named: Named) -> Any:
    """Call a function that makes a tensor from numbers."""
    is_whole = bool(given) and isinstance(given[0], torch.Tensor) and function not in _OF_NUMBERS
    given = (*given[:is_whole], *(_number(each) for each in given[is_whole:]))
    return _following(function, given, named)


_OF_NUMBERS: Final = {torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros}


def _leaving(function: Function, given: Given, named: Named) -> Any:
    return _passing(function, tuple(_number(each) for each in given), named)


def _shaping(function: Function, given: Given, named: Named) -> Any:
    """Call a function of a tensor and numbers."""
    if "out" not in named:
        given = (*given[:1], *(_number(each) for each in given[1:]))
        named = {name: _number(each) for name, each in named.items()}
    return _following(function, given, named)


def _number(value: Any) -> Any:
    """Return the number that a known tensor is, if it is one; PyTorch would read the device."""
    if type(value) is torch.Tensor:
        values = known(value) if value.is_cuda and value.dim() == 0 else None
        if values is None:
            return value
        value.item()  # PyTorch waits for the device here
        return values.item()
    if type(value) in (tuple, list, torch.Size):
        return type(value)(_number(each) for each in value)
    return value


def _copying(function: Function, given: Given, named: Named) -> Any:
    """Call a function that copies its operand, to the device, within it or back."""
    made = function(*given, **named)
    of = given[0] if given else None
    if type(made) is not torch.Tensor or not isinstance(of, torch.Tensor):
        return made
    if made.is_cuda:
        return _with_values(function, given, named, made)
    if of.is_cuda and (values := known(of)) is not None:
        return values.to(made.dtype).clone()
    return made


def _reading(function: Function, given: Given, named: Named) -> Any:
    """Call a function that tells a program the values."""
    made = function(*given, **named)  # PyTorch waits for the device here
    if type(given[0]) is not torch.Tensor or not given[0].is_cuda:
        return made
    if function is torch.Tensor.__format__ and given[0].dim():  # names the device
        return made
    try:
        of, *others = (_there(each) for each in given)
    except _UnknownError:
        return made
    return function(of.clone(), *others, **named)  # the program may change it


def _sizing(function: Function, given: Given, named: Named) -> Any:
    """Call a function whose result has as many rows as known values say."""
    of = given[0] if given else next(iter(named.values()), None)
    if type(of) is not torch.Tensor or not of.is_cuda or "out" in named:
        return _passing(function, given, named)
    if function is torch.where and len(given) + len(named) > 1:
        return _following(function, given, named)
    values = _on_the_cpu(function, given, named)
    if values is None and function in _SELECTING:
        mask = known(given[1] if len(given) > 1 else named["mask"])
        if mask is not None and mask.dtype is torch.bool and mask.numel() <= MOST_ELEMENTS:
            shape = torch.broadcast_shapes(of.shape, mask.shape)
            return of.expand(shape)[_rows(mask.expand(shape), of.device)]
    if values is None:
        return function(*given, **named)
    return _sent(values, of.device)


_SELECTING: Final = {torch.masked_select, torch.Tensor.masked_select}


def _sent(values: Any, device: torch.device) -> Any:
    """Return a result of the CPU as one of the device."""
    if isinstance(values, torch.Tensor):
        made = values.to(device)
        keep(made, values)
        return made
    if isinstance(values, (tuple, list)):
        return type(values)(_sent(each, device) for each in values)
    return values


def _rows(mask: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the indices of what a mask selects, as PyTorch makes them from one."""
    return mask.nonzero().to(device).unbind(1)


def _indexing(function: Function, given: Given, named: Named) -> Any:
    """Read some elements: as many as a known mask says."""
    of, index = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return function(*given, **named)
    made = function(of, _foreseen(index, of.device), **named)
    return _with_values(function, given, named, made)


def _assigning(function: Function, given: Given, named: Named) -> Any:
    """Write some elements."""
    of, index, value = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return _changing(function, given, named)
    if isinstance(value, torch.Tensor) and value.numel() != 1:  # PyTorch needs no rows for one
        return _changing(function, (of, _foreseen(index, of.device), value), named)
    return _changing(function, (of, _foreseen(index, None), value), named)


def _foreseen(index: Any, device: torch.device | None) -> Any:
    """Return an index of numbers, and of rows on the device, for what the device would be read."""
    parts = index if type(index) is tuple else (index,)
    if not any(isinstance(part, (torch.Tensor, slice, list)) for part in parts):
        return index
    made: list[Any] = []
    for part in parts:
        if type(part) is slice:
            made.append(slice(*(_number(each) for each in (part.start, part.stop, part.step))))
        elif device is not None and (mask := _mask(part)) is not None:
            made.extend(_rows(mask, device))
        else:
            made.append(part)
    return tuple(made)


def _mask(part: Any) -> torch.Tensor | None:
    """Return a mask on the CPU, if an index is a known one."""
    if is_mask(part) and part.dim():
        found: torch.Tensor | None = known(part)
        return found
    if type(part) is list and part and all(type(each) is bool for each in part):
        return torch.tensor(part, device="cpu")
    return None


def is_mask(part: Any) -> bool:
    """Whether a part of an index is a mask on the device."""
    masks = (torch.bool, torch.uint8)
    return isinstance(part, torch.Tensor) and part.is_cuda and part.dtype in masks


def _changing(function: Function, given: Given, named: Named) -> Any:
    """Change a tensor in place; it stays known if what it is changed by is known."""
    of, *others = given
    if type(of) is not torch.Tensor:
        return _writing(function, given, named)
    if not of.is_cuda:  # what is brought back
        others = [each if known(each) is None else known(each) for each in others]
        return function(of, *others, **named)
    values = _changed(function, given, named)
    _forget([of])
    made = function(*given, **named)
    if values is not None:
        keep(of, values)
    return made


def _changed(function: Function, given: Given, named: Named) -> torch.Tensor | None:
    """Return what a tensor will be after it is changed in place, None if that is not known."""
    of: torch.Tensor = given[0]
    if of.numel() > MOST_ELEMENTS or of.requires_grad:
        return None
    values: torch.Tensor | None = known(of)
    if values is None and getattr(function, "__name__", "") in _OVERWRITING:
        values = torch.empty(of.shape, dtype=of.dtype, device="cpu")
    if values is None:
        return None
    values = values.clone()
    try:
        with _aside():
            others = {name: _there(each) for name, each in named.items()}
            function(values, *(_there(each) for each in given[1:]), **others)
    except (_UnknownError, *_REFUSED):
        return None
    return values


_OVERWRITING: Final = ("copy_", "fill_", "zero_")


def _repeating(function: Function, given: Given, named: Named) -> Any:
    """Repeat elements as often as known numbers say; PyTorch would read these to check them."""
    if (values := _on_the_cpu(function, given, named)) is not None:
        return _sent(values, given[0].device) if given[0].is_cuda else values
    of, repeats, dim = _repeats(*given, **named)
    times = known(repeats) if isinstance(repeats, torch.Tensor) and repeats.is_cuda else None
    if times is None or not isinstance(of, torch.Tensor) or not of.is_cuda:
        return function(*given, **named)
    if dim is None:
        of, dim = of.flatten(), 0
    rows = torch.arange(of.shape[dim], device="cpu").repeat_interleave(times)
    return of.index_select(dim, rows.to(of.device))


def _repeats(
    input: Any = None,  # noqa: A002 (PyTorch's name)
    repeats: Any = None,
    dim: int | None = None,
    **_: Any,
) -> tuple[Any, Any, int | None]:
    return input, repeats, dim


# ---- what follows


def _with_values(function: Function, given: Given, named: Named, made: Any) -> Any:
    """Return the result, with its values if these follow from known ones."""
    if not _is_worth(made):
        return made
    values = _on_the_cpu(function, given, named)
    if values is None and len(given) > 1 and type(made) is torch.Tensor:
        values = _decided(function, given, made)
    if values is not None:
        _keep_all(made, values)
    return made


def _decided(function: Function, given: Given, made: torch.Tensor) -> torch.Tensor | None:
    """Return the values of `or` and `and` where one operand decides, such as a reached length."""
    decides = _DECIDES.get(getattr(function, "__name__", ""))
    if decides is None or made.is_floating_point() or (decides and made.dtype is not torch.bool):
        return None
    for each in given[:2]:
        values = known(each)
        if isinstance(values, torch.Tensor) and bool((values == decides).all()):
            return torch.full(made.shape, decides, dtype=made.dtype, device="cpu")
    return None


_DECIDES: Final = {
    **dict.fromkeys(("__or__", "bitwise_or", "logical_or"), True),
    **dict.fromkeys(("__and__", "bitwise_and", "logical_and"), False),
}


def _is_worth(made: Any) -> bool:
    """Whether values may be kept of a result."""
    if type(made) is torch.Tensor:
        return made.is_cuda and made.numel() <= MOST_ELEMENTS and not made.requires_grad
    return isinstance(made, (tuple, list)) and bool(made) and all(_is_worth(each) for each in made)


def _keep_all(made: Any, values: Any) -> None:
    if type(made) is torch.Tensor:
        if type(values) is torch.Tensor and values.shape == made.shape and not values.is_cuda:
            keep(made, values.to(made.dtype))
    else:
        for one, other in zip(made, values, strict=True):
            _keep_all(one, other)


@contextmanager
def _aside() -> Iterator[None]:
    """Do something of our own: no mode of the program sees it, no thread has to be woken for it."""
    threads = torch.get_num_threads()
    with torch.no_grad(), private.without_dispatch_modes():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _on_the_cpu(function: Function, given: Given, named: Named) -> Any:
    """Return what a function makes of known values on the CPU, None if one is not known.

    Where the program's own memory is an operand, the result has memory of its own.
    """
    call = _calls.get(function)
    try:
        operands = [_there(each) for each in given]
        if call is _copying:
            return operands[0].clone()
        others = {name: _there(each) for name, each in named.items()}
        if call is _making or not _has_tensor((*operands, *others.values())):
            others["device"] = "cpu"
        with _aside():
            made = function(*operands, **others)
            is_shared = call is _making or any(
                isinstance(each, torch.Tensor) and not each.is_cuda for each in _all(given)
            )
            return made.clone() if is_shared and isinstance(made, torch.Tensor) else made
    except (_UnknownError, *_REFUSED):
        return None


_REFUSED: Final = (
    ArithmeticError,
    AttributeError,
    IndexError,
    RuntimeError,
    TypeError,
    ValueError,
)


class _UnknownError(Exception):
    """An operand whose values are not known."""


def _all(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _all(value)
        else:
            yield value


def _has_tensor(values: Iterable[Any]) -> bool:
    return any(isinstance(each, torch.Tensor) for each in _all(values))


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
    if type(value) is slice:
        return slice(_there(value.start), _there(value.stop), _there(value.step))
    return value
