"""Pool mode: gmlake gives PyTorch's own allocator its segments, through pools of torch.cuda.

A pool is begun for all threads of a device, so that the threads of autograd are served, too. What
tensors of a pool leave behind stays with PyTorch as long as the pool lives, even where memory runs
out; hence a pool is replaced by another when the program empties the cache, after a step of an
optimizer on a device whose memory is nearly used up, and given up with the region.

PyTorch aborts the process where the object of any pool goes while requests are sent to another, or
a graph is captured. So none goes at once, not even one of the program: they are retired until
PyTorch has waited for its streams, which it does only while nothing of the kind is under way.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import atexit
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake import _core
from gmlake.pytorch import device as cuda
from gmlake.pytorch import lakes, streams
from gmlake.pytorch.locking import lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_C: Final[Any] = torch._C  # noqa: SLF001
_allocators: list[Any] = []  # PyTorch's object for our functions, never let go
_open: dict[int, Any] = {}  # device: the pool that its requests go to
_native: dict[str, Callable[..., Any]] = {}
_retired: list[Any] = []  # pools that nobody has any more
_users = Counter[tuple[int, int]]()  # by pool: how often torch.cuda.use_mem_pool() is in it
_hooks: list[Any] = []  # that sees the steps of optimizers

_SCARCE: Final = 8  # memory is scarce where less than this part of a device is free


def obstacle() -> str:
    """Say why no pool can be made in this process; "" if one can."""
    backend = cuda.backend()
    if backend == "native":
        return ""
    return f"PyTorch's allocator is {backend}, which has no pools"


def is_capturing() -> bool:
    """Whether the current stream captures a graph, when no pool may come or go."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def devices() -> tuple[int, ...]:
    """Return the devices that are served now."""
    return tuple(sorted(_open))


def begin(wanted: Iterable[int] | None) -> None:
    """Serve these devices, too; None: the current one and those that this process uses already.

    Nothing changes where that fails. Raises RuntimeError for a device that is not there.
    """
    torch.cuda.init()
    _replace_functions()
    _watch_optimizers()
    streams.watch()
    known = _open.keys()
    fresh = [number for number in _checked(wanted) if number not in known]
    if fresh:
        # What PyTorch holds idle outside of the pools could not be had while they are open.
        _native["_cuda_emptyCache"]()
    begun: list[int] = []
    try:
        for number in fresh:
            _begin(number)
            begun.append(number)
    except BaseException:
        for number in begun:
            _end(number)
        raise


def end() -> None:
    """Serve nothing any more, and give back what no tensor holds."""
    for number in devices():
        _end(number)
    _empty()
    lakes.trim_all()


def empty_cache() -> None:
    """Give back what no tensor holds; stands for PyTorch's, which leaves open pools alone.

    pre: the lock of the regions is held.
    """
    if not is_capturing():
        _replace_pools(lakes.trim_all)


def _replace_pools(then: Callable[[], None]) -> None:
    """Take from PyTorch what its pools hold idle, and call `then` while there are none.

    Nothing while the program is in a pool of its own, which has to stay the last that was begun.
    """
    if _users.total():
        return
    served = devices()
    for number in served:
        _end(number)
    try:
        _empty()
        then()
    finally:
        for number in served:
            _begin(number)


def _checked(wanted: Iterable[int] | None) -> list[int]:
    count = int(torch.cuda.device_count())
    if wanted is None:
        current = int(torch.cuda.current_device())
        is_used = _C._cuda_hasPrimaryContext  # noqa: SLF001
        return [number for number in range(count) if number == current or is_used(number)]
    found = sorted(set(wanted))
    for number in found:
        if not 0 <= number < count:
            raise RuntimeError(f"there is no device {number}; PyTorch sees {count}")
    return found


def _begin(number: int) -> None:
    if not _allocators:
        hooks = _core.torch_hooks()
        _allocators.append(
            _C._cuda_customAllocator(hooks["pool_alloc"], hooks["pool_free"])  # noqa: SLF001
        )
    with torch.cuda.device(number):
        pool = torch.cuda.MemPool(_allocators[0])
        _C._cuda_beginAllocateToPool(number, pool.id)  # noqa: SLF001
    _open[number] = pool


def _end(number: int) -> None:
    pool = _open.pop(number)
    with torch.cuda.device(number):
        _C._cuda_endAllocateToPool(number, pool.id)  # noqa: SLF001
        _C._cuda_releasePool(number, pool.id)  # noqa: SLF001
    _retired.append(pool)


def _empty() -> None:
    """Take from PyTorch what it holds idle, in retired pools, too, where they can go.

    pre: none is open.
    """
    before = _waits()
    _native["_cuda_emptyCache"]()
    if all(now > then for now, then in zip(_waits(), before, strict=True)):
        gone = _retired.copy()
        _retired.clear()
        del gone  # the destructor of each gives its idle segments back


def _waits() -> list[int]:
    """Return how often PyTorch has waited for all streams of each device."""
    return [
        _C._cuda_memoryStats(number)["num_sync_all_streams"]  # noqa: SLF001
        for number in range(torch.cuda.device_count())
    ]


def _replace_functions() -> None:
    if _native:
        return
    _native["_cuda_emptyCache"] = _C._cuda_emptyCache  # noqa: SLF001
    _C._cuda_emptyCache = _C._accelerator_emptyCache = _empty_cache  # noqa: SLF001
    torch.cuda.MemPool.__del__ = _retire  # type: ignore[attr-defined]
    atexit.register(_close)
    for name, change in (
        ("_cuda_beginAllocateCurrentThreadToPool", 1),
        ("_cuda_endAllocateToPool", -1),
    ):
        setattr(torch.cuda.memory, name, _counting(getattr(torch.cuda.memory, name), change))


def _close() -> None:
    """Let go of what the end of the process destroys in an order of its own."""
    with lock:
        if not torch.cuda._is_in_bad_fork():  # noqa: SLF001
            for number in devices():
                _end(number)


def _counting(function: Callable[..., None], change: int) -> Callable[..., None]:
    """Return what torch.cuda.use_mem_pool() calls, and counts where the program is."""

    def call(number: int, pool: tuple[int, int]) -> None:
        with lock:
            if _retired and _open and not is_capturing():
                _replace_pools(lambda: None)  # so that the retired ones give back what they hold
            function(number, pool)
            _users[pool] += change

    return call


def _retire(pool: torch.cuda.MemPool) -> None:
    """Be the finalizer of every pool: keep it where it cannot go."""
    if _open:
        _retired.append(pool)


def _empty_cache() -> None:
    """Be what torch.cuda.empty_cache() calls."""
    with lock:
        if _open:
            empty_cache()
        else:
            _native["_cuda_emptyCache"]()
            if not is_capturing():
                lakes.trim_all()


def _watch_optimizers() -> None:
    if not _hooks:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _hooks.append(register_optimizer_step_post_hook(_after_step))


def _after_step(*_: object) -> None:
    """Replace the pools where PyTorch, left alone, would soon have to give back what it caches."""
    if _open and not is_capturing() and any(map(_is_scarce, devices())):
        with lock:
            if _open:
                _replace_pools(lambda: None)  # the lakes keep it for the next step


def _is_scarce(number: int) -> bool:
    """Whether little of a device is free, though PyTorch holds some of it idle."""
    free_bytes, total_bytes = torch.cuda.mem_get_info(number)
    if free_bytes >= total_bytes // _SCARCE:
        return False
    idle_bytes = torch.cuda.memory_reserved(number) - torch.cuda.memory_allocated(number)
    return bool(idle_bytes > free_bytes)
