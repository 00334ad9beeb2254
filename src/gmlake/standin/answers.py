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
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from gmlake.standin import values

if TYPE_CHECKING:
    Function = Callable[..., Any]
    Given = tuple[Any, ...]
    Named = dict[str, Any]

_DATA_DEPENDENT: Final = (
    "argwhere bincount masked_select nonzero repeat_interleave unique unique_consecutive"
)
"""Functions whose result has as many rows as the data say."""

_MOST_INITIALISED: Final = 1 << 30
"""Elements on the CPU that a program may initialise; the weights after these are left out."""

_asked: Counter[tuple[str, str, int]] = Counter()

_answers: dict[Any, Callable[[Function, Given, Named], Any]] = {}
"""How to call a function."""

_holds: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""The tensors on the device that are read as true."""

_counts: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""By sum: the number of elements, which a mask has where nothing is masked."""


class _Answers(TorchFunctionMode):
    """Sees what a program calls of PyTorch; what PyTorch compiles or exports is left as it is."""

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: Given = (), kwargs: Named | None = None
    ) -> Any:
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        way = _answers.get(func)
        if way is None:
            way = _answers[func] = values.way(func)
        if way is values.plain or _jit.is_tracing():
            return func(*args, **(kwargs or {}))
        if not _PLAIN.issuperset(types):  # others would be asked for what is looked at here, too
            return func(*args, **(kwargs or {}))
        if not values.touches(args) and not (kwargs and values.touches(kwargs.values())):
            return values.from_the_host(way, func, args, kwargs or {})
        return way(func, args, kwargs or {})


_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter))
"""Types that answer as PyTorch does."""

MODE: Final = _Answers()

_jit: Final[Any] = torch.jit

_here: Final = threading.local()
"""Whether this thread is within the mode."""


def install() -> None:
    """Have PyTorch answer; once, for the life of the process."""
    values.install()
    tensor: Any = torch.Tensor
    for home in (torch, tensor):
        for name in _DATA_DEPENDENT.split():
            if hasattr(home, name):
                _answers[getattr(home, name)] = _noted
        _answers[home.where] = _noted
        _answers[home.all] = _holding
        _answers[home.sum] = _counted
        _answers[home.eq] = _answers[tensor.__eq__] = _compared
        _answers[home.allclose] = _answers[home.equal] = _true
    _answers[tensor.__getitem__] = _noted
    _answers[tensor.__bool__] = _answers[tensor.item] = _read
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, _left_out(getattr(torch.nn.init, name)))
    utilities: Any = torch.utils
    utilities.swap_tensors = _swapping(utilities.swap_tensors)
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    hooks.__init__ = _recomputing(hooks.__init__)
    backward: Any = torch.autograd.function.BackwardCFunction
    backward.apply = _everywhere(backward.apply)
    MODE.__enter__()
    _here.is_seen = True


def given() -> list[dict[str, Any]]:
    """Return where the program asked for what depends on data, the most frequent first."""
    return [
        {"function": name, "file": file, "line": line, "count": count}
        for (name, file, line), count in _asked.most_common()
    ]


def _noted(function: Function, given: Given, named: Named) -> Any:
    """Note a call whose result depends on data that are not known."""
    made = values.call(function, given, named)
    if _depends(function, given, named, made):
        name = _NAMES.get(function, function.__name__)
        file, line = _caller()
        _asked[name, file, line] += 1
    return made


_WHERES: Final = {torch.where, torch.Tensor.where}
_NAMES: Final = {
    torch.unique: "unique",
    torch.unique_consecutive: "unique_consecutive",
    torch.Tensor.__getitem__: "a mask as an index",
}
"""Of functions that have another name of their own."""


def _depends(function: Function, given: Given, named: Named, made: Any) -> bool:
    if function is torch.Tensor.__getitem__:
        if not isinstance(given[0], torch.Tensor) or not given[0].is_cuda:
            return False
        index = given[1] if type(given[1]) is tuple else (given[1],)
        return any(values.is_mask(each) and values.known(each) is None for each in index)
    if function in _WHERES and len(given) + len(named) > 1:
        return False
    if function.__name__ == "repeat_interleave":
        repeats = given[1] if len(given) > 1 else named.get("repeats", 0)
        return values.known(repeats) is None and "output_size" not in named
    if function.__name__ == "masked_select":
        return values.known(given[1] if len(given) > 1 else named["mask"]) is None
    first = made[0] if isinstance(made, tuple) and made else made
    return isinstance(first, torch.Tensor) and first.is_cuda and values.known(first) is None


def _holding(function: Function, given: Given, named: Named) -> Any:
    """Call a reduction whose result on the device is read as true."""
    made = values.call(function, given, named)
    if isinstance(made, torch.Tensor) and made.is_cuda and values.known(made) is None:
        _holds[made] = True
    return made


def _counted(function: Function, given: Given, named: Named) -> Any:
    """Call a sum that knows how many elements it is of, unless they have fractions."""
    made = values.call(function, given, named)
    of: Any = given[0] if given else None
    is_ours = isinstance(of, torch.Tensor) and isinstance(made, torch.Tensor) and made.is_cuda
    is_mask = is_ours and made.dim() == 0 and not of.is_floating_point()
    if is_mask and values.known(made) is None:
        _counts[made] = of.numel()
    return made


def _compared(function: Function, given: Given, named: Named) -> Any:
    """Call a comparison that finds a sum to be that of ones, if that is what is asked."""
    made = values.call(function, given, named)
    if len(given) > 1 and isinstance(given[0], torch.Tensor) and type(given[1]) is int:
        count = _counts.get(given[0])
        if count is not None and given[1] == count:
            _holds[made] = True
    return made


def _read(function: Function, given: Given, named: Named) -> Any:
    """Read a tensor that may be one of those."""
    if _holds and given[0] in _holds:
        return True
    return values.call(function, given, named)


def _true(function: Function, given: Given, named: Named) -> Any:
    """Call a comparison that finds tensors on the device equal where their shapes are."""
    one, other, *more = given if len(given) > 1 else (*given, named.get("other"))
    is_ours = isinstance(one, torch.Tensor) and one.is_cuda
    if is_ours and isinstance(other, torch.Tensor) and one.shape == other.shape:
        pair = values.known(one), values.known(other)
        if any(each is None for each in pair):
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


def _recomputing(function: Function) -> Function:
    """Return how what finds saved tensors again is made; it may recompute them."""

    @functools.wraps(function)
    def recomputing(self: Any, pack_hook: Function, unpack_hook: Function) -> None:
        function(self, pack_hook, _everywhere(unpack_hook))

    return recomputing


def _swapping(function: Function) -> Function:
    """Return an exchange of two tensors that nothing refers to weakly any more."""

    @functools.wraps(function)
    def swapping(*tensors: torch.Tensor) -> None:
        for tensor in tensors:
            values.lose(tensor)
            for marked in (_holds, _counts):
                marked.pop(tensor, None)
        function(*tensors)

    return swapping


def _caller() -> tuple[str, int]:
    """Return the innermost line that is not PyTorch's, nor ours."""
    inside = str(Path(torch.__file__).parent), str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


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
