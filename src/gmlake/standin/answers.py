"""What a program is answered where a kernel would have computed it.

Device memory reads as zeros: a loss is 0, a norm is 0, no number is infinite, so the program goes
on. Where the values are known, or assumed, it is answered with these (values.py). The weights of a
model of billions are left as they are on the CPU, since nobody reads them: to initialise them takes
minutes and their memory.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from gmlake.standin import asked, values

if TYPE_CHECKING:
    Function = Callable[..., Any]
    Given = tuple[Any, ...]
    Named = dict[str, Any]

_MOST_INITIALISED: Final = 1 << 30
"""Elements on the CPU that a program may initialise; the weights after these are left out."""

_answers: dict[Any, Callable[[Function, Given, Named], Any]] = {}  # how to call a function


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

_here: Final = threading.local()  # whether this thread is within the mode


def install() -> None:
    """Have PyTorch answer; once, for the life of the process."""
    values.install()
    for home in (torch, torch.Tensor):
        _answers[home.allclose] = _answers[home.equal] = _true
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


def _true(function: Function, given: Given, named: Named) -> Any:
    """Call a comparison that finds tensors on the device equal where their shapes are."""
    one, other, *more = given if len(given) > 1 else (*given, named.get("other"))
    is_ours = isinstance(one, torch.Tensor) and one.is_cuda
    if is_ours and isinstance(other, torch.Tensor) and one.shape == other.shape:
        pair = values.known(one), values.known(other)
        if any(each is None for each in pair):
            asked.note(asked.TRUTH, asked.Certainty.UNKNOWN, answer=True)
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
        function(*tensors)

    return swapping


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
