"""CuPy on gmlake's memory.

CuPy passes an allocator no stream, but the allocator can ask for the current one at each request
and free. As with CuPy's own pool, memory belongs to the stream that is current at the request. In
addition, the stream that is current when the last reference goes counts as a user of it, so that

    with side:
        y = f(x)
        del x

is safe for an x of another stream. The program must order other uses on other streams, as usual.
"""

# mypy: disable-error-code="import-not-found"
# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import cupy

from gmlake import _core
from gmlake.errors import OutOfMemoryError
from gmlake.interop import shared_lakes
from gmlake.interop.shared_lakes import CupyStream
from gmlake.lake import Lake


def use() -> None:
    """Make this CuPy's allocator."""
    cupy.cuda.set_allocator(make())
    cupy.get_default_memory_pool().free_all_blocks()


def make(stream: CupyStream | None = None) -> Callable[[int], Any]:
    """Return an allocator for the current streams, or for one stream only."""
    if stream is None:
        allocator: Callable[[int], Any] = cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc
        return allocator
    return _make_for(stream)


def _make_for(stream: CupyStream) -> Callable[[int], Any]:
    functions = _core.interop_functions()
    home = stream.device_id if stream.device_id >= 0 else None  # the default streams have no home
    device_of = cupy.cuda.runtime.getDevice
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


def _current(device: int) -> int:
    return int(cupy.cuda.get_current_stream(device).ptr)
