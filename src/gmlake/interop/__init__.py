"""Other libraries on the same memory as PyTorch: CuPy, Numba, functions in C.

    from gmlake.interop import use_cupy, use_numba

    use_cupy()   # CuPy's arrays come from gmlake from here on
    use_numba()  # before Numba uses the GPU

All libraries share one lake per device, so memory that one frees serves the others. Policy and
capacity come from gmlake.enable(), or else from the variables GMLAKE_*, at the first request of
any library. These functions import the libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmlake.interop.shared_lakes import lake_of as lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.interop.shared_lakes import CupyStream

__all__ = ["cupy_allocator", "lake", "use_cupy", "use_numba"]


def use_cupy() -> None:
    """Allocate CuPy's arrays from gmlake, on every device and thread, from now on.

    CuPy's pool is bypassed, and its idle memory is released to the devices. Existing arrays keep
    their memory. To switch back:
    `cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)`.

    Out of memory is a cupy.cuda.memory.OutOfMemoryError. Raises ImportError without CuPy.
    """
    from gmlake.interop import on_cupy

    on_cupy.use()


def cupy_allocator(stream: CupyStream | None = None) -> Callable[[int], Any]:
    """Return an allocator for cupy.cuda.set_allocator() and cupy.cuda.using_allocator().

    stream: None: memory belongs to CuPy's current stream at allocation. Otherwise the only CuPy
        stream on which it will be used: it is freed without looking at streams, and the program
        must order work on any other stream with that one.

    Raises ImportError without CuPy.
    """
    from gmlake.interop import on_cupy

    return on_cupy.make(stream)


def use_numba(stream: object = None) -> None:
    """Allocate Numba's device arrays from gmlake. Call it before Numba uses the GPU.

    stream: None: memory is idle when Numba gets it, as with cuMemAlloc, and memory that Numba frees
        is released in batches, after a wait for the device. Otherwise the only stream on which
        Numba's arrays are used, as a number or an object with __cuda_stream__(): no waits.

    Out of memory is both a CudaAPIError of Numba's and a gmlake.OutOfMemoryError.
    Raises ImportError without Numba, and RuntimeError if Numba already uses a device.
    """
    from gmlake.interop import on_numba

    on_numba.use(stream)
