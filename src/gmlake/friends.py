"""The old name of gmlake.interop, deprecated: the next release removes it."""

from gmlake import interop, renamed
from gmlake.interop import cupy_allocator, lake, use_cupy, use_numba

__all__ = ["cupy_allocator", "lake", "use_cupy", "use_numba"]

__path__ = interop.__path__  # NUMBA_CUDA_MEMORY_MANAGER=gmlake.friends.on_numba

renamed.warn("gmlake.friends", "gmlake.interop")
