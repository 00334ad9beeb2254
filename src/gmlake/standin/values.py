"""What is known of the values of tensors on the device, for as long as nothing changes them.

Memory changes by functions that end in an underscore, by assignment, by `out`, and by what raises
the tensor's version. Who asks for an address, a storage or `data` may write unseen: what is known
of that memory is forgotten. A C++ extension that takes addresses in C++, and raises no version, is
overlooked, and so is what other threads than the program's first one make.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import torch

from gmlake.standin import asked, private
from gmlake.standin.asked import AssumedCount, Certainty

if TYPE_CHECKING:
    Function = Callable[..., Any]
    Given = tuple[Any, ...]
    Named = dict[str, Any]
    Way = Callable[[Function, Given, Named], Any]

MOST_ELEMENTS: Final = 1 << 26  # of a tensor whose values are kept
MOST_BYTES: Final = 4 << 30  # of all values that are kept, on the CPU
_MOST_DEPTH: Final = 24  # of functions that wait for each other's results; then they are computed


class Later:
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
            with suppress(UnknownError, *_REFUSED), _aside():
                self._take(make if isinstance(make, torch.Tensor) else make())
        return self._made

    def _take(self, made: Any) -> None:
        is_own = isinstance(made, torch.Tensor) and made._base is None
        size_bytes = made.untyped_storage().nbytes() if is_own else 0
        if Later.held_bytes + size_bytes <= MOST_BYTES:
            self._made, self._bytes = made, size_bytes
            Later.held_bytes += size_bytes

    def __del__(self) -> None:
        type(self).held_bytes -= self._bytes


class _Known(NamedTuple):
    """What is kept of a tensor, and when that was true."""

    of: weakref.ref[torch.Tensor]
    state: tuple[int, int, int]
    later: Later


_known: dict[int, _Known] = {}
"""By the identity of the tensor: an attribute would be copied and saved with it."""

_changes: Counter[int] = Counter()
"""How often memory was seen to change, by the address of its storage."""


def known(value: Any) -> Any:
    """Return a tensor of the CPU with the same values, not to be changed; None if not known."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return value
    later = later_of(value)
    values: Any = None if later is None else later.get()
    is_like = type(values) is torch.Tensor and values.shape == value.shape and not values.is_cuda
    return values.to(value.dtype) if is_like else None


def certainty(value: Any) -> Certainty:
    """Return how much is known of a value."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return Certainty.KNOWN
    later = later_of(value)
    return Certainty.UNKNOWN if later is None else later.certainty


def later_of(value: torch.Tensor) -> Later | None:
    """Return what is kept of a tensor on the device."""
    kept = _known.get(id(value))
    return kept.later if kept is not None and kept.state == _state(value) else None


def keep(tensor: torch.Tensor, later: Later) -> None:
    """Keep the values of a tensor on the device."""
    state = _state(tensor)
    if state is None or torch.cuda.is_current_stream_capturing():  # a replay writes unseen
        return
    number = id(tensor)
    of = weakref.ref(tensor, lambda _: _known.pop(number, None))
    _known[number] = _Known(of, state, later)


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


def forget(values: Iterable[Any]) -> None:
    """Forget what is known of the memory of tensors, whoever else looks at it."""
    for value in tensors_in(values):
        with suppress(NotImplementedError, RuntimeError):
            _changes[value.untyped_storage().data_ptr()] += 1


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors on the device among the values, and in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value if len(value) <= _LONG else value[:1])
        elif type(value) is slice:
            yield from tensors_in((value.start, value.stop, value.step))
        elif type(value) is AssumedCount:
            asked.note(asked.ROWS, Certainty.GUESSED, "a count")


_LONG: Final = 256  # elements of lists that are taken as data, all of one kind


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return an operand with its parts changed."""
    if type(value) in (tuple, list, torch.Size) and len(value) <= _LONG:
        made = [mapped(change, each) for each in value]
        return made if type(value) is list else tuple(made)
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        return slice(*(mapped(change, each) for each in parts))
    return change(value)


@contextmanager
def _aside() -> Iterator[None]:
    """Do something of our own, on the CPU: no mode, no default device of the program counts."""
    with (
        torch.inference_mode(mode=False),
        torch.no_grad(),
        private.without_dispatch_modes(),
        torch.device("cpu"),
    ):
        yield


_REFUSED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class UnknownError(Exception):
    """A value is not known."""
