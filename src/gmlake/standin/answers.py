"""How PyTorch's functions are called on the stand-in, and what a program is answered there.

Kernels compute nothing: a loss is 0, a norm is 0, no number is infinite, so the program goes on.
But it often asks the device for what it knew before: how long a sequence is, which edges a mask
keeps, where an expert's tokens are. So each function is called in a way that keeps what is known
(values.py) and follows from it (results.py, sizing.py), and the program is answered with that. The
weights of a model of billions are left as they are on the CPU, since nobody reads them: to
initialise them takes minutes and their memory.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from gmlake.standin import asked
from gmlake.standin.asked import AssumedCount, Certainty
from gmlake.standin.results import (
    COPIED,
    MADE,
    changing,
    following,
    names,
    number_of,
    plain,
    with_values,
    writing,
)
from gmlake.standin.sizing import assigning, indexing, repeating, sizing
from gmlake.standin.values import (
    Later,
    certainty,
    forget,
    keep,
    known,
    lose,
    mapped,
    tensors_in,
)

if TYPE_CHECKING:
    from gmlake.standin.values import Function, Given, Named, Way

_ways: Final[dict[Any, Way]] = {}
"""How to call each function that was called or is listed."""


def _list() -> None:
    """List what is done with PyTorch's functions."""
    listed: dict[Way, Iterable[str]] = {
        _making: MADE,
        _copying: COPIED,
        _reading: names(
            "__array__ __bool__ __complex__ __contains__ __float__ __format__ __index__ __int__ "
            "is_nonzero item numpy tolist"
        ),
        sizing: names(  # the result has as many rows as the values say; `where`, of one operand
            "argwhere bincount masked_select nonzero unique unique_consecutive where"
        ),
        _shaping: names(  # all operands but the first are sizes, places and numbers
            "chunk expand narrow repeat reshape roll select split split_with_sizes tensor_split "
            "tile topk unflatten view"
        ),
        writing: names(  # the program may write to memory unseen
            "__cuda_array_interface__ __dlpack__ data data_ptr resize_ resize_as_ set_ "
            "share_memory_ storage untyped_storage"
        ),
        following: names("T mT H mH"),
        _holding: ["all"],
        _true: ["allclose", "equal"],
        indexing: ["__getitem__"],
        assigning: ["__setitem__"],
        repeating: ["repeat_interleave"],
    }
    tensor: Any = torch.Tensor
    for way, functions in listed.items():
        for name, home in product(functions, (torch, tensor)):
            found = getattr(home, name, None)
            if isinstance(found, (property, types.GetSetDescriptorType)):
                _ways[found.__get__] = way
            elif callable(found) and not isinstance(found, type):
                _ways[found] = way
    unwritten = tensor.requires_grad_, tensor.detach_, tensor.grad.__set__
    _ways.update(dict.fromkeys((*unwritten, tensor.requires_grad.__set__), plain))
    _ways[tensor.data.__set__] = _replacing
    _ways[torch.nn.functional.one_hot] = sizing


def _from_the_host(way: Way, function: Function, given: Given, named: Named) -> Any:
    """Call a function without operands on the device, as it is called anywhere.

    way: how it would be called with some; of what goes to the device the values are kept.
    """
    made = function(*given, **named)
    if way in (_copying, following, _making) and type(made) is torch.Tensor and made.is_cuda:
        return with_values(function, given, named, made)
    return made


def _unlisted(function: Function) -> Way:
    """Return how to call a function by what it is."""
    name = getattr(function, "__name__", "").partition(".")[0]
    is_pytorchs = isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType))
    is_operator = "pybind" in type(getattr(function, "__self__", None)).__name__
    is_opaque = is_operator or any(each in name for each in _STATISTICAL)
    is_in_place = name.endswith("_") and not name.endswith("__")
    if name == "__set__":
        return writing
    if name == "__get__":
        return plain
    if isinstance(function, types.FunctionType):
        is_in_place |= "inplace" in function.__code__.co_varnames
        return writing if is_opaque or is_in_place else _watching
    if not is_pytorchs or is_opaque:
        return writing  # an operator of another library's may not say what it changes
    return changing if is_in_place else following


# Functions that change statistics without a word.
_STATISTICAL: Final = ("batch_norm", "instance_norm", "fake_quant", "rrelu")


def _watching(function: Function, given: Given, named: Named) -> Any:
    """Call a function in Python: it may change anything."""
    operands = [each for each in tensors_in((*given, *named.values())) if not each.is_inference()]
    before = [(each, each._version) for each in operands]
    made = function(*given, **named)
    forget(each for each, version in before if each._version != version)
    return with_values(function, given, named, made)


def _replacing(function: Function, given: Given, named: Named) -> Any:
    forget(given)
    made = function(*given, **named)
    lose(given[0])
    return made


def _making(function: Function, given: Given, named: Named) -> Any:
    is_of_numbers = getattr(function, "__name__", "") in _OF_NUMBERS
    is_whole = bool(given) and isinstance(given[0], torch.Tensor) and not is_of_numbers
    given = (*given[:is_whole], *mapped(number_of, given[is_whole:]))
    return following(function, given, named)


_OF_NUMBERS: Final = names("arange eye full linspace ones rand randint randn randperm zeros")


def _shaping(function: Function, given: Given, named: Named) -> Any:
    if "out" not in named:
        given = (*given[:1], *mapped(number_of, given[1:]))
        named = {name: mapped(number_of, each) for name, each in named.items()}
    return following(function, given, named)


def _copying(function: Function, given: Given, named: Named) -> Any:
    made = function(*given, **named)
    if type(made) is not torch.Tensor:
        return made
    if made.is_cuda:
        return with_values(function, given, named, made)
    is_read = given[0].is_cuda and made.device.type == "cpu"
    if is_read and (values := known(given[0])) is not None:
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
    made = following(function, given, named)
    if type(made) is torch.Tensor and made.is_cuda and certainty(made) >= Certainty.GUESSED:
        keep(
            made,
            Later(functools.partial(torch.ones, made.shape, dtype=made.dtype), Certainty.GUESSED),
        )
    return made


_MOST_INITIALISED: Final = 1 << 30
"""Elements on the CPU that a program may initialise; the weights after these are left out."""


class _Answers(TorchFunctionMode):
    """Sees what a program calls of PyTorch; what PyTorch compiles or exports is left as it is."""

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Given = (), kwargs: Named | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if torch.compiler.is_compiling():
            return func(*args, **named)
        way = _ways.get(func) or _ways.setdefault(func, _unlisted(func))
        # Other types would be asked for what is looked at here, too.
        if way is plain or _jit.is_tracing() or not _PLAIN.issuperset(types):
            return func(*args, **named)
        if next(tensors_in((*args, *named.values())), None) is None:
            return _from_the_host(way, func, args, named)
        if not args and "input" in named and func not in _INPUT_IS_LATER:
            args = (named.pop("input"),)
        return way(func, args, named)


_INPUT_IS_LATER: Final = (torch.polygamma, torch.searchsorted, torch.where)
"""Functions of PyTorch whose operand `input` is not the first; the others take it by place, too."""

_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter))
"""Types that answer as PyTorch does."""

MODE: Final = _Answers()

_jit: Final[Any] = torch.jit

_here: Final = threading.local()  # whether this thread is within the mode


def install() -> None:
    """Have PyTorch answer; once, for the life of the process."""
    _list()
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, _left_out(getattr(torch.nn.init, name)))
    utilities: Any = torch.utils
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    backward: Any = torch.autograd.function.BackwardCFunction
    make_hooks, swap = hooks.__init__, utilities.swap_tensors

    def __init__(self: Any, pack_hook: Function, unpack_hook: Function) -> None:  # noqa: N807
        make_hooks(self, pack_hook, _everywhere(unpack_hook))  # it may compute again

    def swap_tensors(*tensors: torch.Tensor) -> None:
        for tensor in tensors:
            lose(tensor)  # nothing may refer to them weakly
        swap(*tensors)

    hooks.__init__, utilities.swap_tensors = __init__, swap_tensors
    backward.apply = _everywhere(backward.apply)
    MODE.__enter__()
    _here.is_seen = True


def _true(function: Function, given: Given, named: Named) -> Any:
    """Call a comparison that finds tensors on the device equal where their shapes are."""
    one, other, *more = given if len(given) > 1 else (*given, named.get("other"))
    is_ours = isinstance(one, torch.Tensor) and one.is_cuda
    if is_ours and isinstance(other, torch.Tensor) and one.shape == other.shape:
        pair = known(one), known(other)
        if any(each is None for each in pair):
            asked.note(asked.TRUTH, Certainty.UNKNOWN, answer=True)
            return True
        return function(*pair, *more, **{name: named[name] for name in named if name != "other"})
    return function(*given, **named)


def _everywhere(function: Function) -> Function:
    """Return a function that is seen in the threads of the differentiation, too."""

    @functools.wraps(function)
    def everywhere(*given: Any, **named: Any) -> Any:
        if getattr(_here, "is_seen", False):
            return function(*given, **named)
        _here.is_seen = True
        try:
            with MODE:
                return function(*given, **named)
        finally:
            _here.is_seen = False

    return everywhere


_initialised = 0
_is_within = False
"""Whether an initialisation is under way, which may call others."""


def _left_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an initialisation that leaves the rest of a large model on the CPU untouched.

    A small one gets its values, and so the random numbers after them are those of any other run.
    """

    @functools.wraps(function)
    def left_out(tensor: Any, *arguments: Any, **more: Any) -> Any:
        global _initialised, _is_within  # noqa: PLW0603 (of the process)
        if _is_within or not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            return function(tensor, *arguments, **more)
        if _initialised + tensor.numel() > _MOST_INITIALISED:
            return tensor
        _initialised += tensor.numel()
        _is_within = True
        try:
            return function(tensor, *arguments, **more)
        finally:
            _is_within = False

    return left_out
