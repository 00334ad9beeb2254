"""One scenario of gmlake.interop on the driver `host`; test_interop.py runs each in a process.

    python interop_on_host.py SCENARIO

The lakes below PyTorch are the process's, and so is their driver. A scenario asserts by itself.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import fake_libraries
import gmlake
from gmlake import _core
from gmlake.interop import cupy_allocator, lake, shared_lakes, use_cupy, use_numba
from gmlake.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
CAPACITY = 64 * MIB


def open_lake() -> Lake:
    _core.torch_configure("host", "stitch", CAPACITY)
    return _core.interop_lake(Lake, 0)


def calls(name: str) -> int:
    return lake(0).stats()["driver_calls"][name]


def live() -> int:
    return lake(0).stats()["live_blocks"]


def raised(kind: type[BaseException], function: Callable[[], object]) -> BaseException:
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


# ---- everybody -----------------------------------------------------------------------------------


def one_lake() -> None:
    """What CuPy, Numba and a C function take is counted in one lake."""
    cupy, numba = fake_libraries.install_cupy(), fake_libraries.install_numba()
    use_cupy()
    use_numba()
    address = _core.interop_functions()["alloc"]
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert kind(address)(None, 3 * MIB, 0)
    held = [cupy.cuda.alloc(5 * MIB), numba.use().memalloc(7 * MIB)]
    stats = lake(0).stats()
    assert stats["live_blocks"] == 3
    assert stats["live_bytes"] == 15 * MIB
    assert fake_libraries.Pool.is_emptied
    held.clear()
    numba.use().reset()
    assert live() == 1


def c_functions() -> None:
    """They answer NULL, free nothing for NULL, and find the lake by the device."""
    functions = _core.interop_functions()
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    alloc = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, integer)(functions["alloc"])
    free = ctypes.CFUNCTYPE(None, pointer, pointer, integer)(functions["free"])
    assert alloc(None, 0, 0) is None
    assert alloc(None, 2 * CAPACITY, 0) is None
    assert alloc(None, MIB, -1) is None
    free(None, None, 0)
    address = alloc(77, MIB, 0)
    assert [span["stream"] for span in lake(0).spans() if span["used"]] == [77]
    free(77, address, 0)
    assert live() == 0


def fork() -> None:
    """A child frees what it inherited without touching the lakes of its parent."""
    cupy, numba = fake_libraries.install_cupy(), fake_libraries.install_numba()
    use_cupy()
    use_numba()
    held = [cupy.cuda.alloc(MIB), numba.use().memalloc(MIB)]
    child = os.fork()
    if child == 0:
        held.clear()
        gc.collect()
        os._exit(shared_lakes.find(0) is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert live() == 2


# ---- Numba ---------------------------------------------------------------------------------------


def numba_batches() -> None:
    """Nothing goes back before the device was waited for, once for a batch."""
    use = fake_libraries.install_numba()
    use_numba()
    manager = use.use()
    for number in range(10):
        manager.memalloc(MIB)
        assert live() == number + 1  # gone for Numba, not for the lake
    assert calls("device_synchronize") == 0
    assert calls("stream_synchronize") == 10
    manager.memalloc(MIB)
    assert calls("device_synchronize") == 1
    assert live() == 0


def numba_large() -> None:
    """Few large arrays do not keep other libraries waiting for memory."""
    use = fake_libraries.install_numba()
    use_numba()
    from gmlake.interop import on_numba

    on_numba._MOST_PENDING_BYTES = 8 * MIB  # type: ignore[misc]  # noqa: SLF001
    use.use().memalloc(8 * MIB)
    assert live() == 1
    use.use().memalloc(MIB)
    assert live() == 0


def numba_defers() -> None:
    """Within defer_cleanup() the device is not waited for."""
    use = fake_libraries.install_numba()
    use_numba()
    manager = use.use()
    with manager.defer_cleanup():
        for _ in range(40):
            manager.memalloc(MIB)
        assert calls("device_synchronize") == 0
    manager.memalloc(MIB)
    assert calls("device_synchronize") == 1
    assert live() == 0


def numba_capture() -> None:
    """While a graph is captured nothing is waited for, and what is let go stays."""
    use = fake_libraries.install_numba()
    use_numba()
    manager = use.use()
    core, pool = ctypes.CDLL(_core.__file__), [ctypes.c_uint64(1)] * 2  # passed as its two halves
    core.gml_torch_lake.restype = ctypes.c_void_p
    below = ctypes.c_void_p(core.gml_torch_lake(0))
    assert core.gml_lake_begin_pool(below, *pool) == 0
    for _ in range(20):
        manager.memalloc(MIB)
    assert live() == 20
    assert calls("device_synchronize") == 0
    assert core.gml_lake_end_pool(below, *pool) == 0
    manager.memalloc(MIB)
    assert live() == 0


def numba_memory_ends() -> None:
    """What was let go serves before a request is refused, and a refusal has both kinds."""
    use = fake_libraries.install_numba()
    use_numba()
    manager = use.use()
    manager.memalloc(CAPACITY)
    assert live() == 1
    held = manager.memalloc(CAPACITY)
    error = raised(fake_libraries.CudaAPIError, lambda: manager.memalloc(MIB))
    assert isinstance(error, gmlake.OutOfMemoryError)
    assert isinstance(error, MemoryError)
    assert error.args[0] == 2
    info = manager.get_memory_info()
    assert info == (1 << 20, 1 << 30)
    del held
    manager.reset()
    assert manager.get_memory_info().free == (1 << 20) + CAPACITY


def numba_reset() -> None:
    """Arrays that outlive a reset free nothing a second time."""
    use = fake_libraries.install_numba()
    use_numba()
    manager = use.use()
    old = manager.memalloc(MIB)
    manager.reset()
    assert live() == 0
    new = manager.memalloc(MIB)
    assert new.handle == old.handle
    del old
    manager.reset()
    assert live() == 0
    raised(NotImplementedError, lambda: manager.get_ipc_handle(new))


def numba_one_stream() -> None:
    """With a stream of the program's, nothing is waited for."""
    use = fake_libraries.install_numba()
    use_numba(stream=55)
    manager = use.use()
    held = manager.memalloc(MIB)
    assert [span["stream"] for span in lake(0).spans() if span["used"]] == [55]
    first = held.handle
    del held
    assert live() == 0
    assert manager.memalloc(MIB).handle == first
    assert calls("device_synchronize") == calls("stream_synchronize") == 0


def numba_too_late() -> None:
    """A manager that stays is not passed over in silence."""
    use = fake_libraries.install_numba()
    use.manager = fake_libraries.HostOnlyCUDAMemoryManager
    use.use()
    assert "device 0 already" in str(raised(RuntimeError, use_numba))
    use.context = None
    use.devices.clear()
    use_numba()
    use.use()
    use_numba()
    raised(RuntimeError, lambda: use_numba(stream=3))


# ---- CuPy ----------------------------------------------------------------------------------------


def cupy_streams() -> None:
    """Memory is the current stream's; another one that is current at the end has used it."""
    cupy = fake_libraries.install_cupy()
    use_cupy()
    side = cupy.cuda.Stream()
    with side:
        assert records_at_the_end_of([cupy.cuda.alloc(MIB)]) == 0
        held = [cupy.cuda.alloc(MIB)]
        assert [span["stream"] for span in lake(0).spans() if span["used"]] == [side.ptr]
    assert records_at_the_end_of(held) == 1
    held = [cupy.cuda.alloc(MIB)]
    with side:
        assert records_at_the_end_of(held) == 1


def records_at_the_end_of(held: list[Any]) -> int:
    """Let arrays go; return how many events were recorded to know when."""
    before = calls("event_record")
    held.clear()
    return calls("event_record") - before


def cupy_memory_ends() -> None:
    """A refusal is CuPy's own error, after arrays in cycles were collected."""
    cupy = fake_libraries.install_cupy()
    use_cupy()
    gc.disable()
    cycle: list[Any] = [cupy.cuda.alloc(CAPACITY)]
    cycle.append(cycle)
    del cycle
    held = cupy.cuda.alloc(CAPACITY)
    error = raised(cupy.cuda.memory.OutOfMemoryError, lambda: cupy.cuda.alloc(MIB))
    assert f"{CAPACITY:,}" in str(error)
    assert isinstance(error.__cause__, gmlake.OutOfMemoryError)
    assert cupy.cuda.alloc(0).ptr == 0
    del held


def cupy_one_stream() -> None:
    """CuPy's allocator of C functions has the memory of one stream, and its NULL is an error."""
    cupy = fake_libraries.install_cupy()
    side = cupy.cuda.Stream()
    allocate = cupy_allocator(side)
    held = allocate(MIB)
    assert [span["stream"] for span in lake(0).spans() if span["used"]] == [side.ptr]
    raised(cupy.cuda.memory.OutOfMemoryError, lambda: allocate(2 * CAPACITY))
    assert allocate(0).ptr == 0
    fake_libraries.current_device = 1
    raised(ValueError, lambda: allocate(MIB))
    del held
    assert live() == 0


if __name__ == "__main__":
    opened = open_lake()
    globals()[sys.argv[1]]()
