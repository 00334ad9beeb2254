"""CuPy and Numba without a GPU: what gmlake.interop uses of them, as their sources have it.

The real ones need CUDA, even to say which stream is current. test_gpu_interop.py runs those.
"""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import ctypes
import sys
import weakref
from collections import namedtuple
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

current_device = 0


def module(name: str, **names: Any) -> ModuleType:
    """Make a module that can be imported from here on."""
    made = sys.modules[name] = ModuleType(name)
    made.__dict__.update(names)
    return made


# ---- CuPy ----------------------------------------------------------------------------------------


class BaseStream:
    stack: list[BaseStream] = []  # noqa: RUF012 (one for the process, as the fake has one thread)

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        self.ptr, self.device_id = ptr, device_id

    def __enter__(self) -> None:
        BaseStream.stack.append(self)

    def __exit__(self, *_: object) -> None:
        BaseStream.stack.pop()


class Stream(BaseStream):
    next_handle = 1000

    def __init__(self, *, null: bool = False) -> None:
        Stream.next_handle += not null
        super().__init__(0 if null else Stream.next_handle, -1 if null else 0)


class CupyOutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,})")


class Memory:
    """What an array owns; an address of 0 is nobody's."""

    def __init__(
        self, size: int, malloc: Callable[[int, int], int], free: Callable[[int, int], None]
    ) -> None:
        self.ptr = 0
        self._free = free
        self.ptr = malloc(size, 0) or 0 if size else 0

    def __del__(self) -> None:
        if self.ptr:
            self._free(self.ptr, 0)


class PythonFunctionAllocator:
    def __init__(self, malloc: Callable[[int, int], int], free: Callable[[int, int], None]) -> None:
        self._functions = malloc, free

    def malloc(self, size: int) -> Memory:
        return Memory(size, *self._functions)


class CFunctionAllocator:
    def __init__(self, param: int, malloc: int, free: int, owner: object) -> None:
        pointer, size_t, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        take = ctypes.CFUNCTYPE(pointer, pointer, size_t, integer)(malloc)
        give = ctypes.CFUNCTYPE(None, pointer, pointer, integer)(free)
        self._functions = (
            lambda size, device: take(param, size, device),
            lambda address, device: give(param, address, device),
        )
        self._owner = owner

    def malloc(self, size: int) -> Memory:
        return Memory(size, *self._functions)


class Pool:
    is_emptied = False

    def free_all_blocks(self) -> None:
        Pool.is_emptied = True


def install_cupy() -> ModuleType:
    """Let `import cupy` find the fake."""
    BaseStream.stack = [Stream(null=True)]
    cuda = SimpleNamespace(
        Stream=Stream,
        PythonFunctionAllocator=PythonFunctionAllocator,
        CFunctionAllocator=CFunctionAllocator,
        memory=SimpleNamespace(OutOfMemoryError=CupyOutOfMemoryError),
        runtime=SimpleNamespace(getDevice=lambda: current_device),
        get_current_stream=lambda _device=-1: BaseStream.stack[-1],
    )
    cuda.set_allocator = lambda malloc: setattr(cuda, "alloc", malloc)
    return module("cupy", cuda=cuda, get_default_memory_pool=Pool)


# ---- Numba ---------------------------------------------------------------------------------------


class CudaAPIError(Exception):
    def __init__(self, code: int, msg: str) -> None:
        super().__init__(code, msg)
        self.code = code


class MemoryPointer:
    def __init__(
        self, context: object, pointer: int, size: int, finalizer: Callable[[], None]
    ) -> None:
        self.context, self.handle, self.size = context, pointer, size
        weakref.finalize(self, finalizer)


class HostOnlyCUDAMemoryManager:
    def __init__(self, *, context: object) -> None:
        self.context = context

    def reset(self) -> None:
        pass

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        yield


class Driver:
    """Of one device; `context` is made as Numba makes it, at the first use."""

    def __init__(self) -> None:
        self.devices: dict[int, SimpleNamespace] = {}
        self.manager: Callable[..., Any] = HostOnlyCUDAMemoryManager
        self.context: Any = None

    def cuStreamCreate(self, flags: int) -> int:  # noqa: N802
        return 2000 + flags

    def cuMemGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return 1 << 20, 1 << 30

    def set_memory_manager(self, manager: Callable[..., Any]) -> None:
        assert manager(context=None).interface_version == 1
        self.manager = manager

    def use(self) -> Any:
        """Return the device's memory manager."""
        if self.context is None:
            self.context = type("Context", (), {})()
            self.context.device = SimpleNamespace(id=0)
            self.context.memory_manager = self.manager(context=self.context)
            self.devices[0] = SimpleNamespace(primary_context=self.context)
        return self.context.memory_manager


def install_numba() -> Driver:
    """Let `from numba import cuda` find the fake; return what stands for the device."""
    driver = Driver()
    codes = SimpleNamespace(CUDA_ERROR_OUT_OF_MEMORY=2)
    flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=1))
    binding = SimpleNamespace(CUdeviceptr=int, CUresult=codes, CUstream_flags=flags)
    cuda = module(
        "numba.cuda",
        HostOnlyCUDAMemoryManager=HostOnlyCUDAMemoryManager,
        MemoryInfo=namedtuple("MemoryInfo", "free,total"),  # noqa: PYI024 (as Numba has it)
        MemoryPointer=MemoryPointer,
        set_memory_manager=driver.set_memory_manager,
    )
    config = SimpleNamespace(CUDA_DEALLOCS_COUNT=10)
    module("numba", cuda=cuda)
    module("numba.core", config=config)
    module("numba.cuda.cudadrv")
    module("numba.cuda.cudadrv.driver", CudaAPIError=CudaAPIError, binding=binding, driver=driver)
    return driver
