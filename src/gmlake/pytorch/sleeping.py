"""Memory that sleeps: tensors keep their addresses while their memory is released to the device.

Allocations inside `gmlake.region("weights")` come from a separate lake on each device, so that
nothing else shares their memory. `sleep("weights")` releases all of it to the device,
`wake("weights")` allocates as much again and maps it at the same addresses.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import defaultdict, deque
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

import torch

from gmlake import _core
from gmlake.errors import OutOfMemoryError
from gmlake.pytorch import compat, lakes, relief
from gmlake.pytorch.communicators import (
    CommunicatorMemory,
    memory_of_communicators,
    resume_communicators,
    suspend_communicators,
)
from gmlake.pytorch.exporting import EXPORTABLE
from gmlake.pytorch.generators import numbers_outside
from gmlake.pytorch.inside import Inside
from gmlake.pytorch.locking import process_lock
from gmlake.trace.trace import REGION_NAME
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from gmlake.lake import Lake

    _Chosen = dict[str, list[tuple[int, Lake]]]  # lakes with their devices, by name

_BACKUPS: Final = (None, "cpu")
_SAME: Final = "same"


@dataclass
class _Named:
    """The region of a name. number: its number in the core."""

    number: int
    backup: str | None
    graphs: bool
    yielder: _Yielder | None


class _Yielder:
    """A region that may be put to sleep where a request would be refused, see relief.Giver."""

    rank = 1

    def __init__(self, name: str) -> None:
        self._name = name
        self._giver = 0

    def spare_bytes(self, device: int) -> int:
        held = _lakes_by_name()[self._name]
        awake = [lake for on, lake in held if on == device and not lake.is_asleep]
        return sum(lake.stats()["reserved_bytes"] for lake in awake)

    @property
    def is_changed_here(self) -> bool:
        return self._giver == get_ident()

    def give_way(self, device: int, size_bytes: int) -> bool | None:  # noqa: ARG002 (all or nothing)
        """Sleep, unless a thread is inside of a region; None where another one sleeps or wakes."""
        if self.is_changed_here or _core.torch_has_entered() or not self.spare_bytes(device):
            return False
        if not _lock.acquire(blocking=False):
            return None
        try:
            self._giver = get_ident()
            return sleep(self._name).moved_bytes > 0
        finally:
            self._giver = 0
            _lock.release()

    def settles(self, seconds: float) -> bool:
        done = _lock.acquire(timeout=seconds)
        if done:
            _lock.release()
        return done


@dataclass(eq=False)
class _Hook:
    """The two functions of one on_sleep(), and the sleeping regions that they were told of.

    Noting a name and calling the function is one call of C, so an interrupt comes either before
    both or inside the program's own code.
    """

    before: Callable[[str], object]
    after: Callable[[str], object]
    told: dict[str, str] = field(default_factory=dict)

    def tell_of_sleep(self, names: list[str]) -> None:
        deque(map(self.before, map(self.told.setdefault, names, names)), maxlen=0)

    def tell_of_waking(self, names: list[str]) -> None:
        deque(map(self.after, map(self.told.pop, names)), maxlen=0)


_named: Final[dict[str, _Named]] = {}
_hooks: Final[list[_Hook]] = []
_lock: Final = process_lock()  # guards these two, and lets one sleep or wake at a time


@dataclass(frozen=True)
class MemoryRegion:
    """A region as returned by gmlake.regions(); sizes in bytes, all devices together."""

    name: str
    backup: str | None
    is_asleep: bool
    live_bytes: int
    reserved_bytes: int
    devices: tuple[int, ...]


@dataclass(frozen=True)
class SleepReport:
    """The outcome of sleep() or wake(), and the use of the current device after it; sizes in bytes.

    moved_bytes: released to the devices, or restored. kept_bytes: memory that a device could not
    take back. saved_bytes: bytes copied. seconds: without the callbacks. awake_bytes: other memory
    of gmlake. pytorch_bytes: memory of PyTorch's own allocator, from before gmlake or in its pools.
    other_bytes: everything else on the device: CUDA contexts, NCCL, other libraries and processes.
    These two are 0 where CUDA does not report them. communicators: what NCCL holds for each process
    group on the current device, with sleep(nccl=True) and after it, see CommunicatorMemory.
    """

    names: tuple[str, ...]
    moved_bytes: int
    kept_bytes: int
    saved_bytes: int
    seconds: float
    awake_bytes: int
    pytorch_bytes: int
    other_bytes: int
    communicators: tuple[CommunicatorMemory, ...] = ()

    def __str__(self) -> str:
        """Summarize the bytes that moved, and those left on the device by owner."""
        names = ", ".join(self.names) or "no region"
        sizes = f"{format_size(self.moved_bytes)} moved, {format_size(self.saved_bytes)} copied"
        lines = [f"{names}: {sizes}, in {self.seconds:.3f} s; on the device now:"]
        for held, whose in (
            (self.awake_bytes, "of gmlake, awake"),
            (self.pytorch_bytes, "of PyTorch's own allocator (before gmlake, its own pools)"),
            (self.other_bytes, "of everything else (CUDA contexts, NCCL, other processes)"),
            (self.kept_bytes, "that the device did not release"),
        ):
            lines.append(f"  {format_size(held):>9} {whose}")
        for one in self.communicators:
            told = one.why_left or f"{format_size(one.suspended_bytes)} more is suspended"
            lines.append(f"  {format_size(one.held_bytes):>9} of NCCL, group {one.name}: {told}")
        return "\n".join(lines)


class region(Inside):  # noqa: N801 (it is used as a function)
    """Allocate from a named region whose memory can be released and restored.

    name: any text; entering the same name again adds to its region.
    backup: where sleep() saves contents: "cpu" in page-locked host memory; None discards them.
    graphs: whether memory of CUDA graphs captured inside belongs to the region; otherwise it stays
        awake. That of torch.cuda.MemPool belongs to it in both cases, unless graphs are captured in
        the pool.
    yields: whether gmlake may put the region to sleep by itself, where it or another process that
        shares the device would refuse a request, after all that is idle and after elastic tensors;
        not while a thread is inside of any region, and not during a capture. Call wake() before its
        tensors are used, and use them inside of the region. sleep() and wake() pass over such a
        region that is asleep or awake already.
    everywhere: whether the region applies, while it is entered, to all threads that are in no
        region of their own; otherwise only to this thread, and gradients, which PyTorch's threads
        allocate, lie elsewhere.

    Regions nest; the innermost applies. A decorated function enters it at each call. Raises
    ValueError for an invalid backup and for a name used before with other options, and RuntimeError
    if gmlake does not serve this process.
    """

    def __init__(
        self,
        name: str,
        *,
        backup: str | None = None,
        graphs: bool = False,
        everywhere: bool = False,
        yields: bool = False,
    ) -> None:
        if not name:
            raise ValueError("a region needs a name")
        if backup not in _BACKUPS:
            raise ValueError(f'backup is "cpu" or None, not {backup!r}')
        super().__init__(f"region {name!r}", everywhere=everywhere)
        self.name = name
        self._wanted = (backup, graphs, yields)
        self._numbers: list[torch.cuda.CUDAGraph] = []

    def _recreate_cm(self) -> Self:
        backup, graphs, yields = self._wanted
        return type(self)(
            self.name,
            backup=backup,
            graphs=graphs,
            everywhere=self.is_everywhere,
            yields=yields,
        )

    def _region(self) -> tuple[int, bool, bool]:
        """Return the core's region; it is known by its name from then on."""
        self._numbers = numbers_outside(will_capture=self._wanted[1])
        with _lock:
            known = _named.get(self.name)
            if known is None:
                backup, graphs, yields = self._wanted
                number = EXPORTABLE + 1 + len(_named)
                yielder = _Yielder(self.name) if yields else None
                known = _named[self.name] = _Named(number, backup, graphs, yielder)
                if yielder is not None:
                    relief.add(ref(yielder))
            if (known.backup, known.graphs, known.yielder is not None) != self._wanted:
                raise ValueError(
                    f"region {self.name!r} exists with backup={known.backup!r}, "
                    f"graphs={known.graphs}, yields={known.yielder is not None}; its options "
                    "cannot change"
                )
            return known.number, known.graphs, False


def _lakes_by_name() -> _Chosen:
    """Return each region's lakes, with their devices."""
    found = defaultdict(list)
    for number, device, lake in lakes.of_regions():
        found[number].append((device, lake))
    return {name: found[one.number] for name, one in _named.items()}


def named(number: int) -> str:
    """Return a region of the core in words."""
    names = (name for name, one in _named.items() if one.number == number)
    return next((f"region {name!r}" for name in names), "exportable()")


def name_regions(document: dict[str, Any]) -> None:
    """Add the names of regions to a snapshot of PyTorch, which tells them as private pools."""
    for lake, number, _ in [] if compat.is_in_bad_fork() else _core.torch_region_lakes():
        document["allocator_settings"][f"{REGION_NAME}.{lake}"] = named(number)


def _sleeps(held: Iterable[tuple[int, Lake]]) -> bool:
    return any(lake.is_asleep for _, lake in held)


def _chosen(names: tuple[str, ...], *, are_asleep: bool) -> _Chosen:
    """Return the named regions, or all in that state; ValueError for a name that is not in it."""
    held = _lakes_by_name()
    for name in names:
        if name not in held:
            known = ", ".join(map(repr, held)) or "none"
            raise ValueError(f"no region is called {name!r}; there are: {known}")
        if _sleeps(held[name]) is not are_asleep and _named[name].yielder is None:
            raise ValueError(f"region {name!r} is {'awake' if are_asleep else 'asleep'} already")
    if len(set(names)) < len(names):
        raise ValueError("a region is named twice")
    return {name: held[name] for name in names or held if _sleeps(held[name]) is are_asleep}


def _orders(
    chosen: _Chosen, backup: str | None = _SAME, *, are_asleep: bool
) -> tuple[tuple[str, Lake, str | None], ...]:
    """Return the core's arguments for each lake, see sleep_lakes()."""
    return tuple(
        (
            f"region {name!r} on GPU {device}: ",
            lake,
            _named[name].backup if backup == _SAME else backup,
        )
        for name, held in chosen.items()
        for device, lake in held
        if lake.is_asleep is are_asleep
    )


def _tell_of_waking() -> None:
    """Call after_wake of hooks that were not told that regions woke; raise the first failure.

    After an interrupt, the next sleep() or wake() calls the rest.
    """
    failures = []
    awake = {name for name, held in _lakes_by_name().items() if not _sleeps(held)}
    for hook in _hooks.copy():
        while names := [name for name in hook.told if name in awake]:
            try:
                hook.tell_of_waking(names)
            except BaseException as error:  # noqa: BLE001 (the others are to be called)
                failures.append(error)
    if failures:
        raise failures[0]


def _report(
    names: Iterable[str],
    done: dict[str, int],
    communicators: tuple[CommunicatorMemory, ...],
) -> SleepReport:
    device = lakes.current_device()
    main = lakes.find(device)
    main_bytes = main.stats()["reserved_bytes"] if main is not None else 0
    shares = lakes.shares_of_device(device, main_bytes)
    return SleepReport(
        tuple(names),
        done["released_bytes"],
        done["kept_bytes"],
        done["saved_bytes"],
        done["time_ns"] / 1e9,
        main_bytes + lakes.in_regions_bytes(device),
        shares.get("pytorch_bytes", 0),
        shares.get("other_bytes", 0),
        communicators,
    )


def sleep(*names: str, backup: str | None = _SAME, nccl: bool = False) -> SleepReport:
    """Put regions to sleep: release their memory to the devices and keep their addresses.

    names: regions to sleep (default: all that are awake). backup: "cpu" or None for this call;
    "same": each region's own. nccl: whether NCCL's communicators release their memory as well,
    until wake(). Every rank must call it then, with no work queued on a process group, and no group
    may be used while it sleeps. Needs PyTorch 2.12 with NCCL 2.29.7 or later; the report names the
    groups that could not, which go on.

    Waits for the devices. Until the regions are awake again their tensors must not be used: a
    kernel that does fails with an illegal address. They can be freed. Allocating in the region is a
    RuntimeError. All or nothing: if one region cannot sleep, the ones before it are woken again.
    Raises ValueError for an unknown name, a sleeping region and an invalid backup,
    UnsupportedError while a graph is captured and for tensors shared with other processes, and
    DriverError.
    """
    if backup not in (*_BACKUPS, _SAME):
        raise ValueError(f'backup is "same", "cpu" or None, not {backup!r}')
    with _lock:
        _tell_of_waking()
        chosen = _chosen(names, are_asleep=False)
        try:
            for hook in _hooks.copy():
                hook.tell_of_sleep(list(chosen))
            if nccl:
                suspend_communicators()
            done = _core.sleep_lakes(_orders(chosen, backup, are_asleep=False))
        except BaseException:
            with contextlib.suppress(Exception):
                if nccl:
                    resume_communicators()
                _tell_of_waking()
            raise
        return _report(chosen, done, memory_of_communicators() if nccl else ())


def wake(*names: str, keep_backup: bool = True) -> SleepReport:
    """Wake regions: restore their memory at the same addresses, with the contents that were saved.

    names: regions to wake (default: all that sleep). Contents that were not backed up are
    undefined. keep_backup: whether to keep the page-locked host memory, which is slow to allocate,
    for the next sleep. Communicators of NCCL that sleep are resumed too, before the callbacks are
    told, so every rank must call it.

    All or nothing: if a device has too little memory, idle memory elsewhere is released first; if
    that is not enough, torch.OutOfMemoryError is raised and everything stays asleep. Raises
    ValueError for an unknown name and for a region that is awake, and DriverError.
    """
    with _lock:
        _tell_of_waking()
        chosen = _chosen(names, are_asleep=True)
        try:
            done = _wake(chosen)
            if not keep_backup:
                forget_saved(*chosen)
            resumed = memory_of_communicators() if resume_communicators() else ()
        except BaseException:
            with contextlib.suppress(Exception):
                _tell_of_waking()
            raise
        _tell_of_waking()
        return _report(chosen, done, resumed)


def forget_saved(*names: str) -> None:
    """Give back the host's memory that awake regions keep for their next sleep."""
    with _lock:
        held = _lakes_by_name()
        for name in names:
            for _, lake in held[name]:
                lake.forget_saved()


def _wake(chosen: _Chosen) -> dict[str, int]:
    def attempt() -> dict[str, int]:
        return _core.wake_lakes(_orders(chosen, are_asleep=True))

    def by_processes() -> bool:
        given = [_core.torch_ask_neighbours(*each) for each in _wanted_bytes(chosen).items()]
        return any(given)

    def by_tensors() -> bool:
        wanted = _wanted_bytes(chosen).items()
        short = [each for each in wanted if relief.lacking(*each) > 0]
        return any(relief.ask(*each) for each in short or wanted)

    if any(relief.lacking(*each) > 0 for each in _wanted_bytes(chosen).items()):
        # At once for all that is missing, before chunks are made that do not suffice.
        torch.cuda.empty_cache()
        by_processes()
    with contextlib.suppress(OutOfMemoryError):
        return attempt()
    try:
        return relief.retried(attempt, by_processes, by_tensors)
    except OutOfMemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from None


def _wanted_bytes(chosen: _Chosen) -> dict[int, int]:
    """Return what the sleeping lakes want of each device."""
    wanted: dict[int, int] = defaultdict(int)
    for device, lake in (each for held in chosen.values() for each in held):
        wanted[device] += lake.stats()["reserved_bytes"]
    return wanted


def regions() -> list[MemoryRegion]:
    """Return every region of this process, in the order of first entry."""
    found = []
    with _lock:
        for name, held in _lakes_by_name().items():
            stats = [lake.stats() for _, lake in held]
            found.append(
                MemoryRegion(
                    name,
                    _named[name].backup,
                    _sleeps(held),
                    sum(each["live_bytes"] for each in stats),
                    sum(each["reserved_bytes"] for each in stats),
                    tuple(sorted(device for device, _ in held)),
                )
            )
    return found


def on_sleep(
    before_sleep: Callable[[str], object] | None = None,
    after_wake: Callable[[str], object] | None = None,
) -> Callable[[], None]:
    """Register callbacks that get a region's name before it sleeps and after it wakes.

    For code that registers the memory elsewhere (NCCL, NVSHMEM, RDMA): it must deregister it before
    it is released, and register it again. If a before_sleep raises, everything stays awake, and
    after_wake is called for each before_sleep that was called, including the one that raised: the
    last callback always reflects the state. An exception of after_wake is raised once all have been
    called. Returns a function that unregisters both.
    """
    hook = _Hook(before_sleep or str, after_wake or str)  # which does nothing with a name
    with _lock:
        hook.told.update((name, name) for name, held in _lakes_by_name().items() if _sleeps(held))
        _hooks.append(hook)

    def forget() -> None:
        with _lock, contextlib.suppress(ValueError):
            _hooks.remove(hook)

    return forget


def saved_bytes(tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
    """Return a contiguous tensor's region, and its bytes saved on the host.

    They are those of the last sleep with backup="cpu", and valid until the region sleeps again or
    releases that memory. None if nothing is saved there. Raises ValueError for a tensor that is not
    contiguous.
    """
    if not tensor.is_contiguous():
        raise ValueError("only a contiguous tensor can be read from its backup")
    size = tensor.numel() * tensor.element_size()
    with _lock:
        for name, held in _lakes_by_name().items():
            for _, lake in held:
                address = lake.saved(tensor.data_ptr(), size) if size else None
                if address is not None:
                    buffer: Any = (ctypes.c_uint8 * size).from_address(address)
                    return name, torch.frombuffer(buffer, dtype=torch.uint8)
    return None


def _after_fork() -> None:
    """Forget all regions in a child that cannot use CUDA: they belong to its parent."""
    if compat.is_in_bad_fork():
        _named.clear()
        _hooks.clear()


os.register_at_fork(after_in_child=_after_fork)
