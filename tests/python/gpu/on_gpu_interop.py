"""What CuPy and Numba do on a GPU whose memory is gmlake's; test_gpu_interop.py judges the answers.

    python on_gpu_interop.py cupy|numba

Prints a JSON object with the answer of each scenario.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import torch

import gmlake
from gmlake.interop import cupy_allocator, lake, use_cupy, use_numba

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]

MIB = 1 << 20
SPIN_CYCLES = 1_000_000_000  # about 0.5 s


def reserved() -> int:
    return lake(0).stats()["reserved_bytes"]


def overwritten_late(size: int) -> int:
    """Let a tensor go that its stream will still write to for a while; return its address."""
    tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(SPIN_CYCLES)  # noqa: SLF001 (PyTorch has no public way to spin)
    tensor.fill_(255)
    return int(tensor.data_ptr())


def spin(handle: int) -> None:
    """Keep a stream busy."""
    with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
        torch.cuda._sleep(SPIN_CYCLES)  # noqa: SLF001


def settle() -> None:
    """Begin a scenario with nothing held."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


# ---- CuPy ----------------------------------------------------------------------------------------


def cupy_counted() -> Answer:
    """Count tensors and arrays together."""
    import cupy

    tensor = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    array = cupy.zeros(64 * MIB, dtype="u1")
    live_bytes = lake(0).stats()["live_bytes"]
    pool_bytes = cupy.get_default_memory_pool().total_bytes()
    del tensor, array
    return {"live_bytes": live_bytes, "pool_bytes": pool_bytes}


def cupy_after_torch() -> Answer:
    """Fill memory that PyTorch let go, and writes to later, on a stream that it does not order."""
    import cupy

    side = cupy.cuda.Stream(non_blocking=True)
    cupy.full(1, 7, dtype="u1")  # a kernel is compiled at its first use, for longer than the spin
    address = overwritten_late(256 * MIB)
    reserved_bytes = reserved()
    with side:
        array = cupy.full(256 * MIB, 7, dtype="u1")
        is_same = array.data.ptr == address
        grown_bytes = reserved() - reserved_bytes
        torch.cuda.synchronize()
        unharmed = bool((array == 7).all())
    return {"unharmed": unharmed, "same_address": is_same, "grown_bytes": grown_bytes}


def cupy_current_stream() -> Answer:
    """Read an array on another stream, let it go there, and take its memory on its own."""
    import cupy

    side = cupy.cuda.Stream(non_blocking=True)
    given = cupy.full(64 * MIB, 3, dtype="u1")
    given[:1] * 2  # compiles it
    cupy.cuda.Stream.null.synchronize()
    with side:
        spin(side.ptr)
        doubled = given * 2
        del given
    others = [cupy.full(64 * MIB, 9, dtype="u1") for _ in range(3)]
    torch.cuda.synchronize()
    unharmed = bool((doubled == 6).all())
    del others
    return {"unharmed": unharmed}


def cupy_streams_end() -> Answer:
    """Make and destroy many streams, whose handles come again."""
    import cupy

    handles, sums = set(), []
    for number in range(300):
        stream = cupy.cuda.Stream(non_blocking=True)
        handles.add(stream.ptr)
        with stream:
            array = cupy.arange(1_000_000) + number
            sums.append(int(array.sum()) == 499_999_500_000 + 1_000_000 * number)
            del array
        del stream
    lake(0).check()
    return {"right": all(sums), "handles": len(handles), "reserved_bytes": reserved()}


def cupy_out_of_memory() -> Answer:
    """Be refused, and go on."""
    import cupy

    try:
        cupy.empty(1 << 40, dtype="u1")
    except cupy.cuda.memory.OutOfMemoryError as error:
        message, cause = str(error), str(error.__cause__)
    return {"message": message, "cause": cause, "sum": int(cupy.ones(1000).sum())}


def cupy_one_stream() -> Answer:
    """Allocate by functions in C, for one stream."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    allocate = cupy_allocator(stream)
    with stream, cupy.cuda.using_allocator(allocate):
        array = cupy.arange(1_000_000)
        first = array.data.ptr
        total = int((array * 2).sum())
        del array
        is_reused = cupy.arange(1_000_000).data.ptr == first
        try:
            cupy.empty(1 << 40, dtype="u1")
        except cupy.cuda.memory.OutOfMemoryError as error:
            message = str(error)
    return {"sum": total, "is_reused": is_reused, "message": message}


def cupy_costs() -> Answer:
    """Measure a request and its end, in microseconds."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    ways = {
        "gmlake": cupy_allocator(),
        "gmlake, one stream": cupy_allocator(stream),
        "CuPy's pool": cupy.cuda.MemoryPool().malloc,
    }
    costs = {}
    with stream:
        for name, allocate in ways.items():
            rounds = 20_000
            best = float("inf")
            for _ in range(3):
                start = time.perf_counter()
                for _ in range(rounds):
                    allocate(MIB)
                best = min(best, time.perf_counter() - start)
            costs[name] = round(best / rounds * 1e6, 2)
    return {"microseconds": costs}


# ---- Numba ---------------------------------------------------------------------------------------


def numba_kernel() -> Answer:
    """Run a kernel over arrays."""
    import numpy as np
    from numba import cuda

    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # noqa: NPY201 (Numba wants it, and NumPy has given it up)

    @cuda.jit
    def add(left: Any, right: Any, out: Any) -> None:
        place = cuda.grid(1)
        if place < out.size:
            out[place] = left[place] + right[place]

    left = cuda.to_device(np.arange(1_000_000, dtype=np.float64))
    right = cuda.to_device(np.ones(1_000_000))
    out = cuda.device_array(1_000_000)
    live_blocks = lake(0).stats()["live_blocks"]
    add[4000, 256](left, right, out)
    sum_of_all = float(out.copy_to_host().sum())
    return {"live_blocks": live_blocks, "sum": sum_of_all}


def numba_after_torch() -> Answer:
    """Write to memory that PyTorch let go, and writes to later, on a stream that is not ordered."""
    import numpy as np
    from numba import cuda

    side = torch.cuda.Stream()
    stream = cuda.external_stream(side.cuda_stream)
    sevens = np.full(256 * MIB, 7, dtype="u1")
    overwritten_late(256 * MIB)
    reserved_bytes = reserved()
    array = cuda.device_array(256 * MIB, dtype="u1")
    array.copy_to_device(sevens, stream=stream)
    torch.cuda.synchronize()
    return {
        "unharmed": bool((array.copy_to_host() == 7).all()),
        "grown_bytes": reserved() - reserved_bytes,
    }


def torch_after_numba() -> Answer:
    """Let arrays go that a busy stream still reads, and let PyTorch write all that is free."""
    import numpy as np
    from numba import cuda

    side = torch.cuda.Stream()
    stream = cuda.external_stream(side.cuda_stream)
    source = cuda.to_device(np.full(64 * MIB, 5, dtype="u1"))
    target = cuda.device_array(64 * MIB, dtype="u1")
    spin(side.cuda_stream)
    target.copy_to_device(source, stream=stream)
    del source
    for _ in range(20):  # the end of a batch
        cuda.device_array(1000, dtype="u1")
    others = [torch.full((64 * MIB,), 9, dtype=torch.uint8, device="cuda") for _ in range(3)]
    torch.cuda.synchronize()
    unharmed = bool((target.copy_to_host() == 5).all())
    del others
    return {"unharmed": unharmed}


def numba_out_of_memory() -> Answer:
    """Be refused, and go on."""
    from numba import cuda
    from numba.cuda.cudadrv.driver import CudaAPIError

    try:
        cuda.device_array(1 << 40, dtype="u1")
    except CudaAPIError as error:
        message = str(error)
    free_bytes, total_bytes = cuda.current_context().get_memory_info()
    return {"message": message, "free_bytes": free_bytes, "total_bytes": total_bytes}


SCENARIOS: dict[str, tuple[Callable[[], Answer], ...]] = {
    "cupy": (
        cupy_counted,
        cupy_after_torch,
        cupy_current_stream,
        cupy_streams_end,
        cupy_out_of_memory,
        cupy_one_stream,
        cupy_costs,
    ),
    "numba": (numba_kernel, numba_after_torch, torch_after_numba, numba_out_of_memory),
}


def main() -> None:
    gmlake.enable()
    {"cupy": use_cupy, "numba": use_numba}[sys.argv[1]]()
    overwritten_late(1)  # kernels are loaded at their first use, which takes longer than the spin
    told = {}
    for scenario in SCENARIOS[sys.argv[1]]:
        settle()
        try:
            told[scenario.__name__] = scenario()
        except Exception:  # noqa: BLE001 (it is part of the answer)
            told[scenario.__name__] = {"raised": traceback.format_exc()}
    lake(0).check()
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
