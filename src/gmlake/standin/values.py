"""Values on the device that shape memory, as they would be: what a program made and copied there.

Kernels compute nothing on the stand-in, but a program often asks the device for what it knew
before: how long a sequence is, which edges a mask keeps, where an expert's tokens are. A function
whose operands are all known is done on the CPU as well, by PyTorch itself, once its result is asked
for; until its memory changes, a tensor has that result. Random numbers are drawn on the CPU. What
weights go into is not known: of that, choices and comparisons are assumed (asked.py).

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
from contextlib import contextmanager, suppress
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import torch

from gmlake.standin import asked, private
from gmlake.standin.asked import ASSUMED, AssumedCount, Certainty

if TYPE_CHECKING:
    Function = Callable[..., Any]
    Given = tuple[Any, ...]
    Named = dict[str, Any]
    Way = Callable[[Function, Given, Named], Any]

MOST_ELEMENTS: Final = 1 << 26  # of a tensor whose values are kept
MOST_BYTES: Final = 4 << 30  # of all values that are kept, on the CPU
_MOST_DEPTH: Final = 24  # of functions that wait for each other's results; then they are computed


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MADE: Final = (
    "arange as_tensor asarray eye full full_like linspace logspace new_tensor ones ones_like "
    "scalar_tensor tensor tril_indices triu_indices zeros zeros_like new_full new_ones new_zeros "
    "rand randint randn randperm"
)
_OF_DATA: Final = _names("as_tensor asarray new_tensor tensor")
"""Functions whose operand a program may change afterwards."""

_LIKE: Final = _names(
    "full_like new_full new_ones new_zeros ones_like rand_like randint_like randn_like zeros_like"
)
"""Functions that take no more than the shape and type of their first operand."""

_COPIED: Final = "__deepcopy__ cuda cpu to"
"""Functions to be left alone on the CPU: they may name a device, by number too."""

_READ: Final = (
    "__array__ __bool__ __complex__ __contains__ __float__ __format__ __index__ __int__ "
    "is_nonzero item numpy tolist"
)
_AS_MANY_AS_KNOWN: Final = "argwhere bincount masked_select nonzero unique unique_consecutive where"
"""Functions whose result has as many rows as the values say; `where`, of one operand."""

_SHAPED: Final = (
    "chunk expand narrow repeat reshape roll select split split_with_sizes tensor_split tile topk "
    "unflatten view"
)
"""Functions of which all operands but the first are sizes, places and numbers."""

_EXPOSED: Final = (
    "__cuda_array_interface__ __dlpack__ data data_ptr share_memory_ storage untyped_storage"
)
"""What lets a program write to memory unseen."""

_CHOOSING: Final = _names(
    "argmax argmin argsort cummax cummin kthvalue max median min mode multinomial sort topk"
)
"""Functions that find places of numbers."""

_FINITE: Final = {
    "isfinite": True,
    **dict.fromkeys(("isinf", "isnan", "isneginf", "isposinf"), False),
}
"""What holds of numbers that kernels would compute."""

_RANDOM: Final = ("bernoulli", "dropout", "multinomial", "normal", "poisson", "rand", "rrelu")
_OVERWRITING: Final = _names(
    "bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ uniform_ "
    "zero_"
)
"""Functions after which a tensor has nothing of what it had."""


class _Later:
    """Values that are computed once they are asked for."""

    __slots__ = ("_bytes", "_made", "_make", "certainty", "depth")
    held_bytes: ClassVar[int] = 0

    def __init__(self, make: Any, certain: Certainty = Certainty.KNOWN, depth: int = 0) -> None:
        """make: a function without operands, or a tensor."""
        self._make, self._made, self._bytes = make, None, 0
        self.certainty, self.depth = certain, depth
        if depth >= _MOST_DEPTH or isinstance(make, torch.Tensor):
            self.get()

    def get(self) -> Any:
        """Return the values, None where there are none."""
        make, self._make = self._make, None
        if make is not None:
            self.depth = 0
            with suppress(_UnknownError, *_REFUSED), _aside():
                self._take(make if isinstance(make, torch.Tensor) else make())
        return self._made

    def _take(self, made: Any) -> None:
        is_own = isinstance(made, torch.Tensor) and made._base is None
        size_bytes = made.untyped_storage().nbytes() if is_own else 0
        if _Later.held_bytes + size_bytes <= MOST_BYTES:
            self._made, self._bytes = made, size_bytes
            _Later.held_bytes += size_bytes

    def __del__(self) -> None:
        type(self).held_bytes -= self._bytes


class _Known(NamedTuple):
    """What is kept of a tensor, and when that was true."""

    of: weakref.ref[torch.Tensor]
    version: int
    address: int
    changes: int
    later: _Later


_known: dict[int, _Known] = {}
"""By the identity of the tensor: an attribute would be copied and saved with it."""

_changes: Counter[int] = Counter()
"""How often memory was seen to change, by the address of its storage."""

_calls: dict[Any, Way] = {}  # how to call a function


def install() -> None:
    """List what is done with PyTorch's functions."""
    homes: tuple[Any, ...] = (torch, torch.Tensor)
    for names, call in (
        (_MADE, _making),
        (_COPIED, _copying),
        (_READ, _reading),
        (_AS_MANY_AS_KNOWN, _sizing),
        (_SHAPED, _shaping),
        (_EXPOSED, _writing),
        ("all", _holding),
        ("__getitem__", _indexing),
        ("__setitem__", _assigning),
        ("repeat_interleave", _repeating),
        ("T mT H mH", _following),
        ("resize_ resize_as_ set_", _writing),
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


def way(function: Function) -> Way:
    """Return how to call a function."""
    if function not in _calls:
        _calls[function] = _unlisted(function)
    return _calls[function]


def touches(values: Iterable[Any]) -> bool:
    """Whether one of the values, or an element of a list of them, is a tensor on the device."""
    return next(_tensors(values), None) is not None


def from_the_host(way: Way, function: Function, given: Given, named: Named) -> Any:
    """Call a function without operands on the device, as it is called anywhere.

    way: how it would be called with some; of what goes to the device the values are kept.
    """
    made = function(*given, **named)
    if way in (_copying, _following, _making) and type(made) is torch.Tensor and made.is_cuda:
        return _with_values(function, given, named, made)
    return made


def known(value: Any) -> Any:
    """Return a tensor of the CPU with the same values, not to be changed; None if not known."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return value
    later = _later(value)
    values: Any = None if later is None else later.get()
    is_like = type(values) is torch.Tensor and values.shape == value.shape and not values.is_cuda
    return values.to(value.dtype) if is_like else None


def certainty(value: Any) -> Certainty:
    """Return how much is known of a value."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return Certainty.KNOWN
    later = _later(value)
    return Certainty.UNKNOWN if later is None else later.certainty


def _later(value: torch.Tensor) -> _Later | None:
    kept = _known.get(id(value))
    return kept.later if kept is not None and kept[1:4] == _state(value) else None


def keep(tensor: torch.Tensor, later: _Later) -> None:
    """Keep the values of a tensor on the device."""
    state = _state(tensor)
    if state is None or torch.cuda.is_current_stream_capturing():  # a replay writes unseen
        return
    number = id(tensor)
    of = weakref.ref(tensor, lambda _: _known.pop(number, None))
    _known[number] = _Known(of, *state, later)


def _state(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """Return what tells whether a tensor changed, None if nothing does."""
    try:
        address = tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse, or within torch.func
        return None
    # Inference tensors do not count their changes; only what is seen here changes them.
    return 0 if tensor.is_inference() else tensor._version, address, _changes[address]


def lose(tensor: torch.Tensor) -> None:
    """Keep nothing of a tensor, nor a reference to it."""
    _known.pop(id(tensor), None)


def _forget(values: Iterable[Any]) -> None:
    """Forget what is known of the memory of tensors, whoever else looks at it."""
    for value in _tensors(values):
        with suppress(NotImplementedError, RuntimeError):
            _changes[value.untyped_storage().data_ptr()] += 1


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors on the device among the values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value if len(value) <= _LONG else value[:1])
        elif type(value) is slice:
            yield from _tensors((value.start, value.stop, value.step))
        elif type(value) is AssumedCount:
            asked.note(asked.ROWS, Certainty.GUESSED, "a count")


_LONG: Final = 256  # elements of lists that are taken as data, all of one kind


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return an operand with its parts changed."""
    if type(value) in (tuple, list, torch.Size) and len(value) <= _LONG:
        made = [_mapped(change, each) for each in value]
        return made if type(value) is list else tuple(made)
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        return slice(*(_mapped(change, each) for each in parts))
    return change(value)


# ---- how functions are called


def _unlisted(function: Function) -> Way:
    """Return how to call a function by what it is."""
    name = getattr(function, "__name__", "").partition(".")[0]
    is_pytorchs = isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType))
    is_operator = "pybind" in type(getattr(function, "__self__", None)).__name__
    is_opaque = is_operator or any(each in name for each in _STATISTICAL)
    is_in_place = name.endswith("_") and not name.endswith("__")
    if name == "__set__":
        return _writing
    if name == "__get__":
        return plain
    if isinstance(function, types.FunctionType):
        is_in_place |= "inplace" in function.__code__.co_varnames
        return _writing if is_opaque or is_in_place else _watching
    if not is_pytorchs or is_opaque:
        return _writing  # an operator of another library's may not say what it changes
    return _changing if is_in_place else _following


# Functions that change statistics without a word.
_STATISTICAL: Final = ("batch_norm", "instance_norm", "fake_quant", "rrelu")


def plain(function: Function, given: Given, named: Named) -> Any:
    """Call a function that changes nothing, and of whose result nothing is known."""
    return function(*given, **named)


def _writing(function: Function, given: Given, named: Named) -> Any:
    _forget((*given, *named.values()))
    return function(*given, **named)


def _watching(function: Function, given: Given, named: Named) -> Any:
    """Call a function in Python: it may change anything."""
    operands = [each for each in _tensors((*given, *named.values())) if not each.is_inference()]
    before = [(each, each._version) for each in operands]
    made = function(*given, **named)
    _forget(each for each, version in before if each._version != version)
    return _with_values(function, given, named, made)


def _replacing(function: Function, given: Given, named: Named) -> Any:
    _forget(given)
    made = function(*given, **named)
    lose(given[0])
    return made


def _following(function: Function, given: Given, named: Named) -> Any:
    if "out" in named:
        _forget([named["out"]])
        return function(*given, **named)
    return _with_values(function, given, named, function(*given, **named))


def _making(function: Function, given: Given, named: Named) -> Any:
    is_of_numbers = getattr(function, "__name__", "") in _OF_NUMBERS
    is_whole = bool(given) and isinstance(given[0], torch.Tensor) and not is_of_numbers
    given = (*given[:is_whole], *(_number(each) for each in given[is_whole:]))
    return _following(function, given, named)


_OF_NUMBERS: Final = _names("arange eye full linspace ones rand randint randn randperm zeros")


def _shaping(function: Function, given: Given, named: Named) -> Any:
    if "out" not in named:
        given = (*given[:1], *(_number(each) for each in given[1:]))
        named = {name: _number(each) for name, each in named.items()}
    return _following(function, given, named)


def _number(value: Any) -> Any:
    """Return the number that a known tensor is, if it is one; PyTorch would read the device."""
    if type(value) is not torch.Tensor:
        is_whole = type(value) not in (tuple, list, torch.Size, slice)
        return value if is_whole else _mapped(_number, value)
    values = known(value) if value.is_cuda and value.dim() == 0 else None
    if values is None:
        return value
    asked.note(asked.ROWS, certainty(value), "a count")
    value.item()  # PyTorch waits for the device here
    return values.item()


def _copying(function: Function, given: Given, named: Named) -> Any:
    made = function(*given, **named)
    of = given[0] if given else None
    if type(made) is not torch.Tensor or not isinstance(of, torch.Tensor):
        return made
    if made.is_cuda:
        return _with_values(function, given, named, made)
    is_read = of.is_cuda and made.device.type == "cpu"
    if is_read and (values := known(of)) is not None:
        return values.to(made.dtype, copy=True)
    return made


def _reading(function: Function, given: Given, named: Named) -> Any:
    made = function(*given, **named)  # PyTorch waits for the device here
    of, *others = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return made
    if function is torch.Tensor.__format__ and of.dim():  # names the device
        return made
    values, others = known(of), [known(each) for each in others]
    certain = Certainty.UNKNOWN
    if values is not None and all(each is not None for each in others):
        made, certain = function(values.clone(), *others, **named), certainty(of)
    if certain is Certainty.KNOWN:
        return made
    if type(made) is bool:
        asked.note(asked.TRUTH, certain, answer=made)
    elif function is torch.Tensor.item:
        kinds: Any = {int: AssumedCount, float: asked.UnknownNumber}
        return kinds.get(type(made), type(made))(made)
    elif type(made) is int or (type(made) is list and made and type(made[0]) is int):
        asked.note(asked.ROWS, certain, "a count")
    return made


def _holding(function: Function, given: Given, named: Named) -> Any:
    """Ask whether something holds of all: where numbers are unknown, checks of them do."""
    made = _following(function, given, named)
    if type(made) is torch.Tensor and made.is_cuda and certainty(made) >= Certainty.GUESSED:
        keep(made, _Later(partial(torch.ones, made.shape, dtype=made.dtype), Certainty.GUESSED))
    return made


# ---- functions whose results have as many rows as values say


def _sizing(function: Function, given: Given, named: Named) -> Any:
    """Call a function whose result has as many rows as known values say."""
    of: Any = given[0] if given else next(iter(named.values()), None)
    is_whole = type(of) is not torch.Tensor or not of.is_cuda or "out" in named
    if is_whole or (function is torch.where and len(given) + len(named) > 1):
        return _following(function, given, named)
    name = _NAMES.get(function, function.__name__)
    if name == "masked_select":
        mask = given[1] if len(given) > 1 else named["mask"]
        shape = torch.broadcast_shapes(of.shape, mask.shape)
        mask = _following(torch.broadcast_to, (mask, shape), {})
        return of.expand(shape)[_rows(mask, name, of.device)]
    made = function(*given, **named)  # for what it takes on its way
    if _later(of) is None and name in {"bincount", "one_hot"} and (given[1:] or named):
        return made
    _assume(of, name)
    later = _follow(function, given, named)
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
        make = partial(_guessed, of.shape, of.dtype)
    keep(of, _Later(make, Certainty.GUESSED))


def _rows(mask: Any, name: str, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the indices of what a mask selects, as PyTorch makes them from one."""
    if not isinstance(mask, torch.Tensor):
        return torch.tensor(mask, device="cpu").nonzero().to(device).unbind(1)
    _assume(mask, name)
    values = known(mask)
    asked.note(asked.ROWS, Certainty.UNKNOWN if values is None else certainty(mask), name)
    if values is None:
        rows = int(mask.numel() * _SHARES[ASSUMED])
        return torch.empty((rows, mask.dim()), dtype=torch.int64, device=device).unbind(1)
    return tuple(values.nonzero().to(device).unbind(1))


# Of the elements that a mask of unknown values selects.
_SHARES: Final = {"even": 0.5, "most": 1.0, "least": 0.0}


def _sent(values: Any, device: torch.device, certain: Certainty) -> Any:
    if isinstance(values, (tuple, list)):
        return type(values)(_sent(each, device, certain) for each in values)
    made = values.to(device)
    keep(made, _Later(values, certain))
    return made


def _indexing(function: Function, given: Given, named: Named) -> Any:
    of, index = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return function(*given, **named)
    made = function(of, _foreseen(index, of.device), **named)
    return _with_values(function, given, named, made)


def _assigning(function: Function, given: Given, named: Named) -> Any:
    of, index, value = given
    if type(of) is not torch.Tensor or not of.is_cuda:
        return _changing(function, given, named)
    is_one = not isinstance(value, torch.Tensor) or value.numel() == 1  # PyTorch needs no rows then
    foreseen = _foreseen(index, None if is_one else of.device)
    return _changing(function, given, named, (of, foreseen, value))


def _foreseen(index: Any, device: torch.device | None) -> Any:
    """Return an index of numbers, and of rows on the device, for what the device would be read."""
    parts = index if type(index) is tuple else (index,)
    if not any(isinstance(part, (torch.Tensor, slice, list)) for part in parts):
        return index
    made: list[Any] = []
    for part in parts:
        if type(part) is slice:
            made.append(_number(part))
        elif device is not None and _is_mask(part):
            made.extend(_rows(part, "a mask as an index", device))
        else:
            made.append(part)
    return tuple(made)


def _is_mask(part: Any) -> bool:
    if isinstance(part, torch.Tensor):
        return part.is_cuda and part.dim() > 0 and part.dtype in (torch.bool, torch.uint8)
    return type(part) is list and bool(part) and all(type(each) is bool for each in part)


def _changing(function: Function, given: Given, named: Named, foreseen: Given | None = None) -> Any:
    """Change a tensor in place; it stays known if what it is changed by is known.

    foreseen: what to call the function with, where that is something else.
    """
    of = given[0]
    name = getattr(function, "__name__", "")
    if type(of) is not torch.Tensor:
        return _writing(function, given, named)
    if not of.is_cuda:  # what is brought back
        if name in {"copy_", "__setitem__"}:
            given = tuple(each if known(each) is None else known(each) for each in given)
        return function(*given, **named)
    later, base = _changed(function, name, given, named), of._base
    before = None if base is None else _later(base)
    _forget([of, named.get("out")])
    made = function(*(foreseen or given), **named)
    if later is not None:
        keep(of, later)
    if later is not None and base is not None and before is not None and base.is_contiguous():
        place = of.size(), of.stride(), of.storage_offset() - base.storage_offset()
        keep(base, _to_be(_written, [before, later, place], {}))
    return made


def _changed(function: Function, name: str, given: Given, named: Named) -> _Later | None:
    """Return what a tensor will be after it is changed in place, None if that is not known."""
    of: torch.Tensor = given[0]
    if of.numel() > MOST_ELEMENTS or of.requires_grad:
        return None
    try:
        if name in _OVERWRITING:
            before: Any = _Later(partial(torch.empty, of.shape, dtype=of.dtype))
        else:
            before = _there(of)
        operands = [before, *(_mapped(_there, each) for each in given[1:])]
        return _to_be(partial(_change, function), operands, named)
    except _UnknownError:
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


def _repeating(function: Function, given: Given, named: Named) -> Any:
    """Repeat elements as often as known numbers say; PyTorch would read these to check them."""
    of, repeats, dim = _repeats(*given, **named)
    times = of if repeats is None else repeats
    if not isinstance(of, torch.Tensor) or not isinstance(times, torch.Tensor) or not of.is_cuda:
        return _following(function, given, named)
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
    return _with_values(function, given, named, made)


def _repeats(input: Any = None, repeats: Any = None, dim: Any = None, **_: Any) -> Given:  # noqa: A002
    return input, repeats, dim


# ---- what follows


def _with_values(function: Function, given: Given, named: Named, made: Any) -> Any:
    """Return the result, with its values if these follow from known ones, or may be assumed."""
    parts = made if isinstance(made, (tuple, list)) else (made,)
    worth = [(place, part) for place, part in enumerate(parts) if _is_worth(part)]
    later = _follow(function, given, named, parts[0]) if worth else None
    for place, part in worth:
        if later is None:
            _assume_of(function, given, named, part)
        elif parts is made:
            keep(part, _to_be(getitem, [later, place], {}))
        else:
            keep(part, later)
    return made


def _is_worth(made: Any) -> bool:
    is_ours = type(made) is torch.Tensor and made.is_cuda and not made.requires_grad
    return is_ours and made.numel() <= MOST_ELEMENTS


def _got(value: Any) -> Any:
    made = value.get() if isinstance(value, _Later) else value
    if made is None and value is not None:
        raise _UnknownError
    return made


def _assume_of(function: Function, given: Given, named: Named, made: torch.Tensor) -> None:
    """Assume what is made of unknown numbers: a choice among them, or a comparison."""
    name = getattr(function, "__name__", "")
    if name in _FINITE:
        keep(made, _Later(partial(torch.full, made.shape, _FINITE[name])))
    elif made.dtype is torch.bool:
        keep(made, _Later(partial(_guessed, made.shape, made.dtype), Certainty.GUESSED))
    elif name in _CHOOSING and made.dtype is torch.int64 and isinstance(given[0], torch.Tensor):
        make = partial(_chosen, function, given[0].shape, given[1:], named, made.shape)
        keep(made, _Later(make, Certainty.CHOSEN))


def _guessed(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return a mask of unknown numbers; a single comparison does not hold."""
    share = _SHARES[ASSUMED] if shape or ASSUMED == "most" else 0.0
    return (torch.rand(shape, generator=_fixed(), device="cpu") < share).to(dtype)


def _chosen(
    function: Function, of: torch.Size, given: Given, named: Named, shape: torch.Size
) -> Any:
    """Return places among numbers: of random ones, or of some that fall in each row."""
    width = of[-1] if of else 1
    if of.numel() > MOST_ELEMENTS:
        return torch.randint(width, shape, generator=_fixed(), device="cpu")
    if ASSUMED == "most":
        numbers = torch.arange(width, 0.0, -1.0, device="cpu").expand(of)
    else:
        numbers = torch.rand(of, generator=_fixed(), device="cpu")
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


@contextmanager
def _aside() -> Iterator[None]:
    """Do something of our own: no mode of the program sees it, nor does its differentiation."""
    with torch.inference_mode(mode=False), torch.no_grad(), private.without_dispatch_modes():
        yield


def _follow(function: Function, given: Given, named: Named, made: Any = None) -> _Later | None:
    """Return what a function will make of known values on the CPU, None if one is not known."""
    call, name = _calls.get(function), getattr(function, "__name__", "")
    if "empty" in name:
        return None
    try:
        if name in _LIKE and given and isinstance(given[0], torch.Tensor):
            shape_alone = torch.empty((), dtype=given[0].dtype, device="cpu").expand(given[0].shape)
            given = (_Later(shape_alone), *given[1:])  # as it is: no copy of so many elements
        operands = [_mapped(_there, each) for each in given]
        if call is _copying:
            return _to_be(torch.Tensor.to, [operands[0], made.dtype], {})
        later = _to_be(partial(_work, function, call is _making), operands, named)
    except _UnknownError:
        return None
    if name in _OF_DATA:
        later.get()
    return later


def _work(function: Function, is_making: bool, *given: Any, **named: Any) -> Any:  # noqa: FBT001
    name = getattr(function, "__name__", "")
    if is_making:
        named["device"] = "cpu"
    with _drawing(name):
        made = function(*given, **named)
    return made.clone() if name in _OF_DATA else made


def _to_be(make: Function, operands: list[Any], named: Named) -> _Later:
    others = {name: _mapped(_there, each) for name, each in named.items()}
    waiting: list[_Later] = []
    _mapped(
        lambda each: waiting.append(each) if isinstance(each, _Later) else None,
        [operands, list(others.values())],
    )
    certain = max((each.certainty for each in waiting), default=Certainty.KNOWN)
    depth = 1 + max((each.depth for each in waiting), default=0)
    return _Later(partial(_made, make, operands, others), certain, depth)


def _made(make: Function, operands: list[Any], others: Named) -> Any:
    ready = {name: _mapped(_got, each) for name, each in others.items()}
    return make(*_mapped(_got, operands), **ready)


_REFUSED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class _UnknownError(Exception): ...


def _there(value: Any) -> Any:
    """Return an argument as the same function on the CPU takes it. Raises _UnknownError."""
    if isinstance(value, torch.Tensor):
        later = _later(value) if value.is_cuda else None
        is_ours = type(value) is torch.Tensor and value.numel() <= MOST_ELEMENTS
        if not is_ours or (later is None and value.is_cuda):
            raise _UnknownError
        return later or _Later(value.detach().clone())
    if isinstance(value, (torch.device, str)) and str(value).startswith("cuda"):
        return "cpu"
    return None if isinstance(value, torch.Generator) else value
