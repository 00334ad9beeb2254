"""Streams that lend each other memory: what a program tells of its own, and what came of it.

PyTorch's own streams live as long as the process. One that another library made, and that the
program only wraps for PyTorch, may be destroyed at any time, and no call may be made on it then: a
lake distrusts those that are wrapped.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import operator
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

import torch

from gmlake import _core
from gmlake.pytorch import compat, lakes

if TYPE_CHECKING:
    from gmlake._core import StreamPair

_LASTING: Final = (0, 1, 2)  # the default streams, which nobody can destroy
_watched: list[Any] = []  # what was replaced, as it was


def stream_pairs(device: int | None = None) -> list[StreamPair]:
    """Return what happened between each two streams of a device, of the current one where None.

    Each pair has owner and borrower, the handles of two streams; borrowed_bytes, which the borrower
    took of what the owner holds free, and borrows, how often; waits of the borrower for the owner,
    and refused_waits, which the setting borrow_waits forbade; and deferred_free_bytes, held now:
    tensors of the owner that are gone, while the borrower may use them after record_stream().
    Empty where nothing has been asked of that device yet.
    """
    lake = lakes.find(lakes.current_device() if device is None else device)
    return [] if lake is None else lake.stream_pairs()


def forget_stream(stream: torch.cuda.Stream | SupportsIndex, device: int | None = None) -> None:
    """Say that a stream will be destroyed, and that its last work is queued.

    For streams of other libraries, right before they are destroyed; those of PyTorch never are.
    gmlake makes no call on it from here on. What tensors of it leave behind serves others once that
    work has run. Nothing for a stream that gmlake does not know.

    stream: a torch.cuda.Stream, or its handle as a number. device: where a handle is of; None: the
    current one. Raises ValueError for a default stream, TypeError for what is no stream.
    """
    handle = _handle_of(stream)
    if handle in _LASTING:
        raise ValueError(f"{handle} is a default stream, which nobody can destroy")
    _core.torch_forget_stream(_device_of(stream, device), handle)


def order_streams(
    later: torch.cuda.Stream | SupportsIndex,
    earlier: torch.cuda.Stream | SupportsIndex,
    device: int | None = None,
) -> None:
    """Say that the program made one stream wait for another, as by later.wait_stream(earlier).

    What is queued on `later` from now on runs after all that is queued on `earlier` by now. What
    tensors of `earlier` left behind so far then serves `later` at no cost. Nothing where gmlake
    does not know both, or they are of two devices.

    Arguments as for forget_stream(). Raises TypeError for what is no stream.
    """
    handles = _handle_of(later), _handle_of(earlier)
    number = _device_of(later, device)
    lake = lakes.find(number) if number == _device_of(earlier, device) else None
    if lake is not None:
        lake.order_streams(*handles)


def _handle_of(stream: object) -> int:
    handle: Any = getattr(stream, "cuda_stream", stream)
    try:
        return operator.index(handle)
    except TypeError:
        raise TypeError(f"a stream is a torch.cuda.Stream or its handle, not {stream!r}") from None


def _device_of(stream: object, device: int | None) -> int:
    if hasattr(stream, "cuda_stream"):
        return int(stream.device_index)  # type: ignore[attr-defined]
    return lakes.current_device() if device is None else device


# ---- streams of others


def watch() -> None:
    """Distrust each stream of another library, from when the program wraps it; lasts.

    It has to last: what is wrapped between two regions may be used in the second.
    """
    if _watched:
        return
    make = torch.cuda.ExternalStream.__new__
    _watched.append(make)

    def make_distrusted(cls: type[Any], *args: object, **kwargs: object) -> object:
        stream = make(cls, *args, **kwargs)
        distrust(stream.cuda_stream, stream.device_index)
        return stream

    torch.cuda.ExternalStream.__new__ = staticmethod(make_distrusted)  # type: ignore[method-assign]
    _watch_wrapping()
    for found in gc.get_objects():
        if issubclass(type(found), torch.cuda.Stream) and found.stream_id == found.cuda_stream:
            distrust(found.cuda_stream, found.device_index)


def _watch_wrapping() -> None:
    """Watch torch.cuda.get_stream_from_external(), which is not in every PyTorch."""
    wrap = compat.stream_wrapper()
    if wrap is None:
        return
    _watched.append(wrap)

    def wrap_distrusted(handle: int, device: int) -> tuple[int, int, int]:
        parts: tuple[int, int, int] = wrap(handle, device)
        distrust(handle, parts[1])
        return parts

    compat.replace_stream_wrapper(wrap_distrusted)


def distrust(handle: int, device: int) -> None:
    """Make no call on a stream of another library any more; PyTorch's own stay trusted."""
    if not _is_current_of_torch(handle, device):
        _core.torch_distrust_stream(device, handle)


def _is_current_of_torch(handle: int, device: int) -> bool:
    """Whether it is PyTorch's own, and current: torch.from_dlpack() wraps that one."""
    if not torch.cuda.is_initialized():
        return False
    current = torch.cuda.current_stream(device)
    return bool(current.cuda_stream == handle != current.stream_id)
