"""Native mode: gmlake behind PyTorch's C++ allocator interface, in front of PyTorch's allocator.

It can begin at any time, and nothing of PyTorch is missing: what gmlake does not serve, PyTorch's
own allocator does. Once in place the adapter stays until the process ends; a flag says who serves.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from gmlake import _core
from gmlake.pytorch import adapter, device, streams
from gmlake.pytorch.compiling import AdapterError

if TYPE_CHECKING:
    from pathlib import Path

_REASON_BYTES = 256
_loaded: list[ctypes.CDLL] = []  # the adapter, once it is in place


def is_installed() -> bool:
    """Whether the adapter is in place."""
    return bool(_loaded)


def obstacle() -> str:
    """Say why this process cannot begin native mode now; "" if it can."""
    if is_installed():
        return ""
    if device.backend() == "pluggable":
        return "another allocator was put into PyTorch by change_current_allocator()"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a graph is being captured"
    try:
        adapter.find()
    except AdapterError as error:
        return str(error)
    return ""


def install() -> None:
    """Put the adapter in place, for good. pre: there is no obstacle. Raises RuntimeError."""
    if is_installed():
        return
    loaded = _load(adapter.find())
    core = ctypes.CDLL(_core.__file__)
    core.gml_torch_native_core.restype = ctypes.c_void_p
    reason = ctypes.create_string_buffer(_REASON_BYTES)
    table = ctypes.c_void_p(core.gml_torch_native_core())
    if not loaded.gml_native_install(table, reason, ctypes.c_size_t(_REASON_BYTES)):
        raise RuntimeError(f"mode native is impossible: {reason.value.decode()}")
    _loaded.append(loaded)
    streams.watch()


def serve(*, is_wanted: bool) -> None:
    """Let tensors come from gmlake from now on, or from PyTorch's allocator."""
    _loaded[0].gml_native_serve(ctypes.c_bool(is_wanted))


def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    loaded.gml_native_install.restype = ctypes.c_bool
    made_for = loaded.gml_native_minor()
    if made_for != adapter.minor():
        raise RuntimeError(
            f"{path} is for PyTorch 2.{made_for}, not {torch.__version__}; remove it"
        )
    return loaded
