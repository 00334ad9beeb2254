"""Memory that sleeps: tensors keep their addresses while the device has their memory back.

What a thread allocates inside of `gmlake.region("weights")` lies in a lake of its own, one for each
device, so that nothing else shares its memory. `sleep("weights")` gives all of that back to the
device, `wake("weights")` takes as much again and maps it where it was.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake.errors import Error, OutOfMemoryError
from gmlake.pytorch import lakes
from gmlake.pytorch.inside import Inside
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from gmlake.lake import Lake

_BACKUPS: Final = (None, "cpu", "disk")
_SAME: Final = "same"


@dataclass
class _Named:
    """What a name stands for. number: the core's, see exporting.py; odd with graphs=True."""

    number: int
    backup: str | None
    folder: str | None
    graphs: bool
    last_backup: str | None = None  # of the last sleep, which may have chosen another


@dataclass
class _Process:
    named: dict[str, _Named] = field(default_factory=dict)
    hooks: list[tuple[Callable[[str], object] | None, Callable[[str], object] | None]] = field(
        default_factory=list
    )


_process = _Process()
_lock = threading.RLock()  # guards the above, and lets one sleep or wake at a time


@dataclass(frozen=True)
class MemoryRegion:
    """A region as gmlake.regions() tells of it; sizes in bytes, of all devices together."""

    name: str
    backup: str | None
    is_asleep: bool
    live_bytes: int
    reserved_bytes: int
    devices: tuple[int, ...]


@dataclass(frozen=True)
class SleepReport:
    """What sleep() or wake() did, and what is on the current device after it; sizes in bytes.

    moved_bytes: given back to the devices, or taken again. kept_bytes: what a device would not take
    back. saved_bytes: what was copied. seconds: of all but the hooks. awake_bytes: what gmlake
    holds beside. pytorch_bytes: what PyTorch's own allocator holds (graphs, torch.cuda.MemPool).
    other_bytes: all else on the device: CUDA's contexts, NCCL, other libraries and processes. Both
    are 0 where CUDA does not tell.
    """

    names: tuple[str, ...]
    moved_bytes: int
    kept_bytes: int
    saved_bytes: int
    seconds: float
    awake_bytes: int
    pytorch_bytes: int
    other_bytes: int

    def __str__(self) -> str:
        """Say what moved, and what stayed on the device and whose it is."""
        names = ", ".join(self.names) or "no region"
        sizes = f"{format_size(self.moved_bytes)} moved, {format_size(self.saved_bytes)} copied"
        lines = [f"{names}: {sizes}, in {self.seconds:.3f} s; on the device now:"]
        for held, whose in (
            (self.awake_bytes, "of gmlake, for what is awake"),
            (self.pytorch_bytes, "of PyTorch's own allocator (graphs, MemPool, before gmlake)"),
            (self.other_bytes, "of all else (CUDA's context, NCCL, other processes)"),
            (self.kept_bytes, "that the device did not take back"),
        ):
            lines.append(f"  {format_size(held):>9} {whose}")
        return "\n".join(lines)


class region(Inside):  # noqa: N801 (it is used as a function)
    """Let what is allocated inside lie in memory that can sleep, under a name.

    name: any text; the same name again adds to what is there. backup: how sleep() saves what
    tensors hold: "cpu" in page-locked memory of the host, "disk" in a file of `folder` (TMPDIR or
    /tmp unless said), None not at all. graphs: whether the memory of CUDA graphs that are captured
    inside is the region's, too; otherwise PyTorch's own allocator holds it. everywhere: whether it
    holds, while it is entered, for all threads that are in no region of their own; otherwise for
    this one alone, and gradients, which threads of PyTorch's make, lie elsewhere.

    Regions nest: the inner one counts. As a decorator it is entered at each call. Raises ValueError
    for a backup that is none and where the name is known with other options, and RuntimeError where
    gmlake does not serve this process.
    """

    def __init__(
        self,
        name: str,
        *,
        backup: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        graphs: bool = False,
        everywhere: bool = False,
    ) -> None:
        """Check what was given; nothing begins yet."""
        if not name:
            raise ValueError("a region needs a name")
        if backup not in _BACKUPS:
            raise ValueError(f'backup is "cpu", "disk" or None, not {backup!r}')
        if folder is not None and backup != "disk":
            raise ValueError('a folder is for backup="disk"')
        super().__init__(f"region {name!r}", everywhere=everywhere)
        self.name = name
        self._wanted = (backup, None if folder is None else os.fspath(folder), graphs)

    def _recreate_cm(self) -> Self:
        backup, folder, graphs = self._wanted
        return type(self)(
            self.name, backup=backup, folder=folder, graphs=graphs, everywhere=self._everywhere
        )

    def number(self) -> int:
        """Return the core's number of the region, which is known by its name from then on."""
        with _lock:
            known = _process.named.get(self.name)
            if known is None:
                backup, folder, graphs = self._wanted
                number = 4 * (len(_process.named) + 1) + graphs
                known = _process.named[self.name] = _Named(number, backup, folder, graphs)
            if (known.backup, known.folder, known.graphs) != self._wanted:
                raise ValueError(
                    f"region {self.name!r} is there with backup={known.backup!r}, "
                    f"folder={known.folder!r}, graphs={known.graphs}; it has one set of options"
                )
            return known.number


def _lakes_of(number: int) -> list[tuple[int, Lake]]:
    """Return (device, lake) of each device where the region has memory."""
    return [(device, lake) for region, device, lake in lakes.of_regions() if region == number]


def _chosen(names: tuple[str, ...], *, are_asleep: bool) -> list[tuple[str, _Named]]:
    """Return what is named, or all that is in that state; ValueError for what cannot be meant."""
    for name in names:
        if name not in _process.named:
            known = ", ".join(map(repr, _process.named)) or "none"
            raise ValueError(f"no region is called {name!r}; there are: {known}")
        if _is_asleep(_process.named[name]) is not are_asleep:
            raise ValueError(f"region {name!r} is {'awake' if are_asleep else 'asleep'} already")
    if len(set(names)) < len(names):
        raise ValueError("a region is named twice")
    if names:
        return [(name, _process.named[name]) for name in names]
    return [(name, one) for name, one in _process.named.items() if _is_asleep(one) is are_asleep]


def _is_asleep(one: _Named) -> bool:
    return any(lake.is_asleep for _, lake in _lakes_of(one.number))


def _folder_of(one: _Named, backup: str | None) -> str | None:
    return (one.folder or tempfile.gettempdir()) if backup == "disk" else None


def _tell(hook: int, names: list[str]) -> None:
    """Call the hooks of before (0) or after (1), in the order in which they were added."""
    for pair in list(_process.hooks):
        called = pair[hook]
        if called is not None:
            for name in names:
                called(name)


def _report(names: list[str], done: list[dict[str, int]], device: int) -> SleepReport:
    sums = {key: sum(one[key] for one in done) for key in (done[0] if done else {})}
    main = lakes.find(device)
    main_bytes = main.stats()["reserved_bytes"] if main is not None else 0
    shares = lakes.shares_of_device(device, main_bytes)
    return SleepReport(
        tuple(names),
        sums.get("released_bytes", 0),
        sums.get("kept_bytes", 0),
        sums.get("saved_bytes", 0),
        sums.get("time_ns", 0) / 1e9,
        main_bytes + lakes.in_regions_bytes(device),
        shares.get("pytorch_bytes", 0),
        shares.get("other_bytes", 0),
    )


def sleep(*names: str, backup: str | None = _SAME) -> SleepReport:
    """Put regions to sleep: their memory goes back to the devices, their addresses stay.

    names: all that are awake unless some are named. backup: for this time "cpu", "disk" or None;
    "same": as each region was given.

    Waits for the devices. Until they are awake again the tensors must not be used: a kernel that
    does ends in an illegal address. They can be freed. Allocating in the region is a RuntimeError.
    All or nothing: where one region cannot sleep, those before it are woken again. Raises
    ValueError for an unknown name, one that sleeps already and a backup that is none,
    UnsupportedError while a graph is captured and for tensors that were shared with other
    processes, DriverError.
    """
    if backup not in (*_BACKUPS, _SAME):
        raise ValueError(f'backup is "same", "cpu", "disk" or None, not {backup!r}')
    with _lock:
        chosen = _chosen(names, are_asleep=False)
        told = [name for name, _ in chosen]
        _tell(0, told)
        done: list[tuple[Lake, dict[str, int]]] = []
        device = lakes.current_device()
        try:
            for name, one in chosen:
                how = one.last_backup = one.backup if backup == _SAME else backup
                for number, lake in _lakes_of(one.number):
                    with _naming(name, number):
                        done.append((lake, lake.sleep(how, _folder_of(one, how))))
        except BaseException:
            for lake, _ in reversed(done):
                lake.wake()
            _tell(1, told)
            raise
        return _report(told, [report for _, report in done], device)


def wake(*names: str, keep_backup: bool = True) -> SleepReport:
    """Wake regions: take memory again at the same addresses, and copy back what was saved.

    names: all that sleep unless some are named. What was not saved holds anything. keep_backup:
    whether the host's page-locked memory stays for the next sleep, which takes long to make.

    All or nothing: where a device has not enough memory, what is idle elsewhere is given back, and
    if that is not enough, torch.OutOfMemoryError is raised and everything sleeps as before. Raises
    ValueError for an unknown name and one that is awake, DriverError.
    """
    with _lock:
        chosen = _chosen(names, are_asleep=True)
        told = [name for name, _ in chosen]
        done: list[tuple[Lake, _Named, dict[str, int]]] = []
        device = lakes.current_device()
        try:
            for name, one in chosen:
                for number, lake in _lakes_of(one.number):
                    if lake.is_asleep:
                        with _naming(name, number):
                            report = _wake(lake)
                        done.append((lake, one, report))
        except BaseException:
            for lake, one, _ in reversed(done):
                lake.sleep(one.last_backup, _folder_of(one, one.last_backup))
            raise
        if not keep_backup:
            forget_saved(*told)
        _tell(1, told)
        return _report(told, [report for *_, report in done], device)


def forget_saved(*names: str) -> None:
    """Give back the host's memory that awake regions keep for their next sleep."""
    with _lock:
        for name in names:
            for _, lake in _lakes_of(_process.named[name].number):
                lake.forget_saved()


def _wake(lake: Lake) -> dict[str, int]:
    try:
        return lake.wake()
    except OutOfMemoryError:
        torch.cuda.empty_cache()
    return lake.wake()


@contextlib.contextmanager
def _naming(name: str, device: int) -> Iterator[None]:
    """Say whose failure it was, and raise the end of memory as PyTorch does."""
    try:
        yield
    except OutOfMemoryError as error:
        raise torch.OutOfMemoryError(f"region {name!r} on GPU {device}: {error}") from None
    except Error as error:
        raise type(error)(f"region {name!r} on GPU {device}: {error}") from None


def regions() -> list[MemoryRegion]:
    """Return every region of this process, in the order in which they were first entered."""
    found = []
    with _lock:
        for name, one in _process.named.items():
            held = _lakes_of(one.number)
            stats = [lake.stats() for _, lake in held]
            found.append(
                MemoryRegion(
                    name,
                    one.backup,
                    _is_asleep(one),
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
    """Let these be called with a region's name before it sleeps, and after it woke.

    For whoever registered its memory elsewhere (NCCL, NVSHMEM, RDMA) and has to end that before it
    goes, and to do it again. An exception of before_sleep leaves everything awake. Return a
    function that forgets both.
    """
    pair = (before_sleep, after_wake)
    with _lock:
        _process.hooks.append(pair)

    def forget() -> None:
        with _lock, contextlib.suppress(ValueError):
            _process.hooks.remove(pair)

    return forget


def saved_bytes(tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
    """Return a contiguous tensor's region, and its bytes where they are saved on the host.

    They are those of the last sleep with backup="cpu", and valid until the region sleeps again or
    gives that memory back. None where nothing is saved there. Raises ValueError for a tensor that
    is not contiguous.
    """
    if not tensor.is_contiguous():
        raise ValueError("only a contiguous tensor can be read where it is saved")
    size = tensor.numel() * tensor.element_size()
    with _lock:
        for name, one in _process.named.items():
            for _, lake in _lakes_of(one.number):
                address = lake.saved(tensor.data_ptr(), size) if size else None
                if address is not None:
                    buffer: Any = (ctypes.c_uint8 * size).from_address(address)
                    return name, torch.frombuffer(buffer, dtype=torch.uint8)
    return None
