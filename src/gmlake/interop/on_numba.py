"""Numba on gmlake's memory: a manager for numba.cuda.set_memory_manager().

Numba passes a manager no stream, and any kernel on any stream may use an array. So a manager that
was given no stream keeps the contract of cuMemAlloc and cuMemFree. It allocates for a stream of its
own on which no kernel runs, and then waits for that stream, which takes time only if the lake made
it wait for another library's work. Memory that Numba frees is collected and returned to the lake
in batches, after one wait for the device each.

NUMBA_CUDA_MEMORY_MANAGER=gmlake.interop.on_numba has the same effect as use().
"""

# mypy: disable-error-code="import-not-found"
# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Final, NoReturn

from numba import cuda
from numba.core import config
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer
from numba.cuda.cudadrv.driver import CudaAPIError, binding, driver

from gmlake import _core, errors
from gmlake.interop import shared_lakes
from gmlake.lake import Lake

_INTERFACE_VERSION: Final = 1
_MOST_PENDING_BYTES: Final = 256 << 20  # which other libraries cannot use before it is returned


class OutOfMemoryError(CudaAPIError, errors.OutOfMemoryError):
    """Raised by Numba when a device has no memory left; `code` is the driver's."""


def use(stream: object = None) -> None:
    """Make this Numba's memory manager."""
    handle = None if stream is None else shared_lakes.handle_of(stream)
    for number, device in driver.devices.items():
        context = device.primary_context
        if context is not None and not _is_ours(context.memory_manager, handle):
            raise RuntimeError(
                f"Numba uses device {number} already, with a memory manager that stays; call "
                "use_numba() before Numba uses a GPU"
            )
    cuda.set_memory_manager(partial(Manager, stream=handle))


def _is_ours(manager: object, handle: int | None) -> bool:
    return isinstance(manager, Manager) and manager.stream == handle


class Manager(HostOnlyCUDAMemoryManager):
    """The memory of one device; Numba makes one for each.

    stream: the handle of the only stream on which its arrays are used; None: any stream.
    """

    def __init__(self, *, context: object, stream: int | None = None) -> None:
        """Allocate nothing yet: Numba creates one without a device to read its version."""
        super().__init__(context=context)
        self.stream = stream
        self._own: Any = None  # the stream on which nothing runs
        self._names = count()
        self._live: dict[int, tuple[int, int]] = {}  # name: address and size
        self._pending: list[tuple[int, int]] = []  # let go, and work may still use it
        self._deferred = 0

    @property
    def interface_version(self) -> int:
        """The version of Numba's interface."""
        return _INTERFACE_VERSION

    def initialize(self) -> None:
        """Do nothing: the lake is opened by the first request."""

    def memalloc(self, size: int) -> MemoryPointer:
        """Return memory of the current device. Raises OutOfMemoryError."""
        lake = shared_lakes.lake_of(self._device)
        try:
            address = shared_lakes.served(partial(self._allocate, lake, size), self._give_back)
        except errors.OutOfMemoryError as error:
            raise OutOfMemoryError(binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY, str(error)) from error
        name = next(self._names)
        self._live[name] = (address, size)
        return MemoryPointer(
            weakref.proxy(self.context),
            binding.CUdeviceptr(address),
            size,
            finalizer=partial(self._let_go, name),
        )

    def get_memory_info(self) -> MemoryInfo:
        """Return free memory, including the lake's idle memory, and total memory."""
        free_bytes, total_bytes = driver.cuMemGetInfo()
        stats = shared_lakes.lake_of(self._device).stats()
        idle_bytes = stats["reserved_bytes"] - stats["live_bytes"]
        return MemoryInfo(free=free_bytes + max(0, idle_bytes), total=total_bytes)

    def get_ipc_handle(self, memory: MemoryPointer) -> NoReturn:
        """Raise NotImplementedError: CUDA has no such handles for mapped memory."""
        raise NotImplementedError(
            "memory of gmlake cannot be shared between processes by Numba's handles; allocate such "
            "arrays in a process that does not call use_numba()"
        )

    def reset(self) -> None:
        """Free everything, including memory that arrays still hold."""
        super().reset()
        for name in list(self._live):
            self._let_go(name)
        self._give_back()

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Return a context without waits."""
        with super().defer_cleanup():
            self._deferred += 1
            try:
                yield
            finally:
                self._deferred -= 1

    @property
    def _device(self) -> int:
        return int(self.context.device.id)

    def _allocate(self, lake: Lake, size: int) -> int:
        """Return memory of the program's stream, or memory that no work uses."""
        if self.stream is not None:
            return int(lake.allocate(size, self.stream))
        if self._own is None:
            self._own = driver.cuStreamCreate(binding.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
        handle = int(self._own)
        address = int(lake.allocate(size, handle))
        try:
            # While a graph is captured no stream is made to wait, so there is nothing to wait for.
            _core.interop_wait_stream(lake, handle)
        except errors.Error:
            lake.free(address)
            raise
        return address

    def _let_go(self, name: int) -> None:
        """Free an array's memory; a second free, after reset(), does nothing."""
        address, size = self._live.pop(name, (0, 0))
        lake = shared_lakes.find(self._device)
        if not address or lake is None:
            return
        if self.stream is not None:
            lake.free(address)
            return
        self._pending.append((address, size))
        pending_bytes = sum(size for _, size in self._pending)
        is_full = len(self._pending) > config.CUDA_DEALLOCS_COUNT
        if not self._deferred and (is_full or pending_bytes > _MOST_PENDING_BYTES):
            with suppress(errors.Error):  # no caller could catch it; the next batch tries again
                self._give_back()

    def _give_back(self) -> None:
        """Release freed memory to the lake, after a wait; nothing while a graph is captured."""
        lake = shared_lakes.find(self._device)
        batch, self._pending = self._pending, []
        if lake is None or not batch:
            return
        try:
            has_waited = _core.interop_wait_device(lake)
        except errors.Error:
            self._pending += batch
            raise
        if not has_waited:
            self._pending += batch
            return
        for address, _ in batch:
            lake.free(address)


_numba_memory_manager: Final = Manager
"""The name that Numba expects in the module that NUMBA_CUDA_MEMORY_MANAGER names."""
