"""Shared by all of interop: the lakes below PyTorch, and streams of any library."""

from __future__ import annotations

import gc
import operator
import os
from collections.abc import Callable
from typing import Final, Protocol

from gmlake import _core
from gmlake.errors import OutOfMemoryError
from gmlake.lake import Lake
from gmlake.pytorch import session, session_settings
from gmlake.pytorch.session_settings import Settings

_found: Final[dict[int, Lake]] = {}


def lake_of(device: int) -> Lake:
    """Return the lake of a device, opening it if necessary. It is shared: do not close it.

    Its stats() count what PyTorch, CuPy, Numba and functions in C hold together. Raises ValueError
    for a wrong environment variable or device, DriverError, UnsupportedError and OutOfMemoryError.
    """
    lake = _found.get(device)
    if lake is None:
        _configure()
        lake = _found[device] = _core.interop_lake(Lake, device)
    return lake


def serving_lake_of(device: int) -> Lake:
    """Return the lake that serves this thread on a device: its region's, if it is in one."""
    _configure()
    return _core.interop_serving_lake(Lake, device)


def find(device: int) -> Lake | None:
    """Return the lake of a device; None if this process has not used it, e.g. after a fork."""
    return _found.get(device)


def known() -> list[tuple[int, Lake]]:
    """Return every device and lake that this process has used."""
    return list(_found.items())


def _configure() -> None:
    """Configure lakes from the environment, unless a session or an open lake already has."""
    if session.settings() is None and not _core.torch_devices():
        session_settings.configure(Settings.of())


# A parent's lakes must not be used: their locks may never be released.
os.register_at_fork(after_in_child=_found.clear)


def served(request: Callable[[], int], make_room: Callable[[], None] = lambda: None) -> int:
    """Return a request's result, retried once after a collection of arrays in cycles.

    make_room: frees more memory before the retry. Raises OutOfMemoryError.
    """
    try:
        return request()
    except OutOfMemoryError:
        gc.collect()
        make_room()
    return request()


# ---- streams


class CupyStream(Protocol):
    """The attributes of CuPy's streams in use; device_id is -1 for the default streams."""

    ptr: int
    device_id: int


def handle_of(stream: object) -> int:
    """Return a stream's cudaStream_t as a number.

    stream: a number, an object with __cuda_stream__() as CuPy, Numba and CUDA Python have it, or
    one with the attribute cuda_stream, as PyTorch, or ptr, as CuPy. Raises TypeError.
    """
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    try:
        return operator.index(stream)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{stream!r} is neither a stream nor the number of one") from None
