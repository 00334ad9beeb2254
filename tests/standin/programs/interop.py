"""PyTorch, Numba and a function in C on one lake; prints what was seen as JSON."""

# mypy: allow-untyped-calls
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import ctypes
import gc
import json
import sys
from typing import Any

import torch

import gmlake
from gmlake import _core
from gmlake.interop import lake, use_numba
from gmlake.standin import control

MIB = 1 << 20


def figures() -> dict[str, int]:
    """Return what the lake says of device 0."""
    stats = lake(0).stats()
    return {name: stats[name] for name in ("live_bytes", "reserved_bytes", "live_blocks")}


def tensor(size: int) -> torch.Tensor:
    """Return a tensor of so many bytes, whose kernel is queued."""
    return torch.zeros(size, dtype=torch.uint8, device="cuda")


def c_function() -> dict[str, Any]:
    """Take memory as a library in C would, on the stream that is PyTorch's current one."""
    pointer = ctypes.c_void_p
    functions = _core.interop_functions()
    alloc = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, ctypes.c_int)(functions["alloc"])
    free = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int)(functions["free"])
    held = tensor(30 * MIB)
    stream = torch.cuda.current_stream().cuda_stream
    address = alloc(stream, 20 * MIB, 0)
    told = {"held": figures(), "torch_bytes": torch.cuda.memory_allocated()}
    elsewhere = alloc(None, 2 * MIB, 1)
    told["elsewhere"] = lake(1).stats()["live_bytes"]
    free(None, elsewhere, 1)
    free(stream, address, 0)
    again = tensor(20 * MIB)
    told["is_reused"] = again.data_ptr() == address
    del held
    return told


def with_numba() -> dict[str, Any]:
    """Let PyTorch and Numba take turns with memory."""
    use_numba()
    from numba import cuda

    first = tensor(100 * MIB)
    array = cuda.device_array(60 * MIB, dtype="u1")
    told: dict[str, Any] = {"held": figures(), "torch_bytes": torch.cuda.memory_allocated()}
    del first
    array = cuda.device_array(100 * MIB, dtype="u1")  # over what PyTorch and Numba let go
    told["lent"] = figures()
    part = array[10:20]
    del array
    gc.collect()
    told["viewed_blocks"] = figures()["live_blocks"]
    del part
    cuda.current_context().reset()
    told["freed"] = figures()
    again = tensor(100 * MIB)
    told["back"] = figures()
    del again
    control.reset_calls()
    for _ in range(33):
        cuda.device_array(1000, dtype="u1")
    told["device_waits"] = control.calls().get("cuCtxSynchronize", 0)
    cuda.current_context().reset()
    try:
        cuda.device_array(200 << 30, dtype="u1")
    except gmlake.OutOfMemoryError as error:
        told["refusal"] = str(error)
    told["info"] = cuda.current_context().get_memory_info()
    return told


def main() -> None:
    """Do what the argument says."""
    gmlake.enable()
    told = with_numba() if sys.argv[1] == "numba" else c_function()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    lake(0).check()
    told["left"] = figures()
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
