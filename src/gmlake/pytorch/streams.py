"""Streams that lend each other memory: a program's declarations, and statistics.

PyTorch's own streams live as long as the process. A stream of another library, which the program
only wraps for PyTorch, may be destroyed at any time, after which it must not be used: a lake treats
wrapped streams as external.
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

_LASTING: Final = (0, 1, 2)  # the default streams, which cannot be destroyed
_watched: list[Any] = []  # the function that was replaced


def stream_pairs(device: int | None = None) -> list[StreamPair]:
    """Return what each pair of streams of a device lent each other; None: the current device.

    Each pair has owner and borrower, the handles of two streams; borrowed_bytes, the free memory of
    the owner that the borrower took, and borrows, how often; waits of the borrower for the owner,
    and refused_waits, which the setting borrow_waits prevented; and deferred_free_bytes, held now:
    freed tensors of the owner that the borrower may still use after record_stream(). Empty before
    the first request on that device.
    """
    lake = lakes.find(lakes.current_device() if device is None else device)
    return [] if lake is None else lake.stream_pairs()


def release_stream(stream: torch.cuda.Stream | SupportsIndex, device: int | None = None) -> None:
    """Declare that a stream will be destroyed and that its last work is queued.

    For streams of other libraries, right before they are destroyed; PyTorch's never are. gmlake
    makes no further call on it. Memory freed on it serves other streams once that work has run.
    Does nothing for a stream that gmlake does not know.

    stream: a torch.cuda.Stream, or its handle as a number. device: the device of a handle;
    None: the current one. Raises ValueError for a default stream, TypeError for anything but a
    stream.
    """
    handle = _handle_of(stream)
    if handle in _LASTING:
        raise ValueError(f"{handle} is a default stream, which cannot be destroyed")
    _core.torch_release_stream(_device_of(stream, device), handle)


def order_streams(
    later: torch.cuda.Stream | SupportsIndex,
    earlier: torch.cuda.Stream | SupportsIndex,
    device: int | None = None,
) -> None:
    """Declare that the program made one stream wait for another, as by later.wait_stream(earlier).

    Work queued on `later` from now on runs after all work queued on `earlier` so far. Memory that
    `earlier` has freed so far then serves `later` without another wait. Does nothing if gmlake does
    not know both, or if they belong to different devices.

    Arguments as for release_stream(). Raises TypeError for anything but a stream.
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
    """Mark each stream of another library as external when the program wraps it, from now on.

    Never undone, because a stream wrapped between two sessions may be used in the second.
    """
    if _watched:
        return
    make = torch.cuda.ExternalStream.__new__
    _watched.append(make)

    def make_external(cls: type[Any], *args: object, **kwargs: object) -> object:
        stream = make(cls, *args, **kwargs)
        mark_external(stream.cuda_stream, stream.device_index)
        return stream

    torch.cuda.ExternalStream.__new__ = staticmethod(make_external)  # type: ignore[method-assign]
    _watch_wrapping()
    for found in gc.get_objects():
        if issubclass(type(found), torch.cuda.Stream) and found.stream_id == found.cuda_stream:
            mark_external(found.cuda_stream, found.device_index)


def _watch_wrapping() -> None:
    """Watch torch.cuda.get_stream_from_external(), which is not in every PyTorch."""
    wrap = compat.stream_wrapper()
    if wrap is None:
        return
    _watched.append(wrap)

    def wrap_external(handle: int, device: int) -> tuple[int, int, int]:
        parts: tuple[int, int, int] = wrap(handle, device)
        mark_external(handle, parts[1])
        return parts

    compat.replace_stream_wrapper(wrap_external)


def mark_external(handle: int, device: int) -> None:
    """Mark a stream of another library as external: no more calls on it. Not PyTorch's own."""
    if not _is_current_of_torch(handle, device):
        _core.torch_mark_external_stream(device, handle)


def _is_current_of_torch(handle: int, device: int) -> bool:
    """Whether it is PyTorch's own, and current: torch.from_dlpack() wraps that one."""
    if not torch.cuda.is_initialized():
        return False
    current = torch.cuda.current_stream(device)
    return bool(current.cuda_stream == handle != current.stream_id)
