"""Native mode: gmlake implements PyTorch's C++ allocator interface and wraps PyTorch's allocator.

It can begin at any time, and no feature of PyTorch is missing: PyTorch's own allocator serves the
requests that gmlake does not. Once installed, the adapter stays until the process ends; a flag
selects the allocator.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import os
from typing import Final

from gmlake import _core
from gmlake.pytorch import adapter, device
from gmlake.pytorch.compiling import AdapterError

_REASON_BYTES = 256
_UNCACHED: Final = "PYTORCH_NO_CUDA_MEMORY_CACHING"  # whatever its value


class _Process:
    """State that lasts until the process ends."""

    def __init__(self) -> None:
        self.adapter: ctypes.CDLL | None = None  # once it is in place
        self.obstacle = ""  # why it never will be


_process: Final = _Process()


def is_installed() -> bool:
    """Whether the adapter is in place."""
    return _process.adapter is not None


def obstacle() -> str:
    """Return why gmlake never serves this process; "" if nothing is known to be in its way."""
    if device.backend() == "pluggable":  # which may take the adapter's place before CUDA starts
        _process.obstacle = "change_current_allocator() put it there; leave one of the two out"
    elif _UNCACHED in os.environ:
        _process.obstacle = f"{_UNCACHED} is set, which turns caching off"
    return _process.obstacle


def install() -> str:
    """Install the adapter until the process ends; return "", or why that is impossible.

    Raises RuntimeError while a graph is captured or a MemPool is in use, in any thread, that the
    adapter does not know; it can be retried afterwards.
    """
    if why := obstacle():
        return why
    if _process.adapter is None:
        try:
            _process.adapter = _put_in_place()
        except AdapterError as error:
            _process.obstacle = str(error)
            return _process.obstacle
    if not _process.adapter.gml_native_knows_pools():
        raise RuntimeError(
            "gmlake cannot begin while a thread captures a graph or is inside of "
            "torch.cuda.use_mem_pool(); enable it before"
        )
    return ""


def serve(*, is_wanted: bool) -> None:
    """Allocate tensors from gmlake from now on, or else from PyTorch's allocator."""
    if _process.adapter is not None:
        _process.adapter.gml_native_serve(ctypes.c_bool(is_wanted))


def _put_in_place() -> ctypes.CDLL:
    """Load and install the adapter. Raises AdapterError."""
    loaded = adapter.load()
    loaded.gml_native_install.restype = loaded.gml_native_knows_pools.restype = ctypes.c_bool
    core = ctypes.CDLL(_core.__file__)
    core.gml_torch_native_core.restype = ctypes.c_void_p
    reason = ctypes.create_string_buffer(_REASON_BYTES)
    table = ctypes.c_void_p(core.gml_torch_native_core())
    if not loaded.gml_native_install(table, reason, ctypes.c_size_t(_REASON_BYTES)):
        raise AdapterError(reason.value.decode())
    return loaded
