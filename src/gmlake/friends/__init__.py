"""Other libraries on the same memory as PyTorch: CuPy, Numba, functions in C.

    from gmlake.friends import use_cupy, use_numba

    use_cupy()   # CuPy's arrays come from gmlake from here on
    use_numba()  # before Numba uses the GPU

Each device has one lake, whoever asks, so what one library frees serves the others. Who chooses
the policy and the capacity is gmlake.enable(), or else the variables GMLAKE_*, when the first of
all asks for memory. The libraries are imported by these functions, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmlake.friends.lakes import lake_of as lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.friends.streams import CupyStream

__all__ = ["cupy_allocator", "lake", "use_cupy", "use_numba"]


def use_cupy() -> None:
    """Let CuPy's arrays come from gmlake, on every device and thread, from here on.

    CuPy's pool on top of it is left out, and what it holds idle goes back to the devices. Arrays
    that are there already keep their memory. To go back:
    `cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)`.

    Out of memory is a cupy.cuda.memory.OutOfMemoryError. Raises ImportError without CuPy.
    """
    from gmlake.friends import on_cupy

    on_cupy.use()


def cupy_allocator(stream: CupyStream | None = None) -> Callable[[int], Any]:
    """Return what cupy.cuda.set_allocator() and cupy.cuda.using_allocator() take.

    stream: None: memory is for the stream that is CuPy's current one when it is asked for. Else
        the CuPy stream on which alone it will be used: it goes back without a look at streams, and
        work on any other stream is the program's to order with that one.

    Raises ImportError without CuPy.
    """
    from gmlake.friends import on_cupy

    return on_cupy.make(stream)


def use_numba(stream: object = None) -> None:
    """Let Numba's device arrays come from gmlake. To be called before Numba uses the GPU.

    stream: None: memory is idle when Numba gets it, as with cuMemAlloc, and what Numba frees is
        handed on in batches, after a wait for the device. Else the stream on which alone Numba's
        arrays are used, as a number or an object with __cuda_stream__(): nothing is waited for.

    Out of memory is an error that is both a CudaAPIError of Numba's and a gmlake.OutOfMemoryError.
    Raises ImportError without Numba, and RuntimeError where Numba uses a device already.
    """
    from gmlake.friends import on_numba

    on_numba.use(stream)
