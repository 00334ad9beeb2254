"""CuPy on gmlake's memory.

CuPy passes an allocator no stream, but the allocator can ask for the current one at each request
and free. As with CuPy's own pool, memory belongs to the stream that is current at the request. In
addition, the stream that is current when the last reference goes counts as a user of it, so that

    with side:
        y = f(x)
        del x

is safe for an x of another stream. The program must order other uses on other streams, as usual.

CuPy destroys a stream with its object. Lakes must forget the stream before that, so CuPy's stream
finalizer is replaced by one that tells them first. Streams that CuPy only wraps may be destroyed
without notice, and lakes make no call on those.
"""

# mypy: disable-error-code="import-not-found"
# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn

import cupy

from gmlake import _core
from gmlake.errors import OutOfMemoryError
from gmlake.interop import shared_lakes

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.interop.shared_lakes import CupyStream
    from gmlake.lake import Lake

_met: Final[set[tuple[int, int]]] = set()  # (device, handle) of streams that were current
_finalizers: Final[list[Callable[..., None]]] = []  # CuPy's own, once it is replaced


def use() -> None:
    """Make this CuPy's allocator."""
    cupy.cuda.set_allocator(make())
    cupy.get_default_memory_pool().free_all_blocks()


def make(stream: CupyStream | None = None) -> Callable[[int], Any]:
    """Return an allocator for the current streams, or for one stream only."""
    _watch_streams()
    if stream is None:
        allocator: Callable[[int], Any] = cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc
        return allocator
    return _make_for(stream)


def _make_for(stream: CupyStream) -> Callable[[int], Any]:
    functions = _core.interop_functions()
    home = stream.device_id if stream.device_id >= 0 else None  # the default streams have no home
    device_of = cupy.cuda.runtime.getDevice
    _meet(stream, device_of() if home is None else home)
    malloc = cupy.cuda.CFunctionAllocator(
        stream.ptr, functions["alloc"], functions["free"], stream
    ).malloc

    def allocate(size: int) -> object:
        """Return the memory; CuPy itself takes NULL for an address."""
        device = device_of()
        if home not in (None, device):
            raise ValueError(f"{stream!r} cannot have memory of device {device}")
        lake = shared_lakes.lake_of(device)
        pointer = malloc(size)
        if size and not pointer.ptr:
            gc.collect()
            pointer = malloc(size)
        if size and not pointer.ptr:
            _refuse(size, lake)
        return pointer

    return allocate


def _allocate(size: int, device: int) -> int:
    lake = shared_lakes.lake_of(device)
    handle = _current(device)
    try:
        return shared_lakes.served(lambda: int(lake.allocate(size, handle)))
    except OutOfMemoryError as error:
        _refuse(size, lake, error)


def _free(address: int, device: int) -> None:
    lake = shared_lakes.find(device)
    if lake is None:
        return  # a forked child, whose memory this is not
    if not sys.is_finalizing():
        lake.record_stream(address, _current(device))
    lake.free(address)


def _refuse(size: int, lake: Lake, error: OutOfMemoryError | None = None) -> NoReturn:
    raise cupy.cuda.memory.OutOfMemoryError(size, lake.stats()["live_bytes"]) from error


# ---- streams -------------------------------------------------------------------------------------


def _current(device: int) -> int:
    stream = cupy.cuda.get_current_stream(device)
    _meet(stream, device)
    return int(stream.ptr)


def _meet(stream: CupyStream, device: int) -> None:
    """Mark a stream as external in a lake before its first use: it may end without notice."""
    known = (device, int(stream.ptr))
    if known in _met or stream.ptr in shared_lakes.LASTING:
        return
    if not _is_owned(stream):
        _mark_external(*known)
    _met.add(known)


def _mark_external(device: int, handle: int) -> None:
    if "torch" in sys.modules:
        from gmlake.pytorch import streams

        streams.mark_external(handle, device)
    else:
        _core.torch_mark_external_stream(device, handle)


def _is_owned(stream: CupyStream) -> bool:
    """Whether its object destroys it, in the finalizer that is replaced here."""
    is_wrapper = getattr(stream, "_foreign_stream_ref", None) is not None
    return bool(_finalizers) and isinstance(stream, cupy.cuda.Stream) and not is_wrapper


def _watch_streams() -> None:
    original = vars(cupy.cuda.Stream).get("__del__")
    if _finalizers or original is None:
        return  # without one, no stream is owned
    _finalizers.append(original)

    @wraps(original)
    def finalize(stream: CupyStream, *arguments: object) -> None:
        if not sys.is_finalizing():
            _forget(stream)
        original(stream, *arguments)

    cupy.cuda.Stream.__del__ = finalize


def _forget(stream: CupyStream) -> None:
    handle = getattr(stream, "ptr", 0)
    if handle in shared_lakes.LASTING or not _is_owned(stream):
        return
    for device in _core.torch_devices():
        _met.discard((device, handle))
        _core.torch_release_stream(device, handle)
