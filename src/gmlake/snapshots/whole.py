"""Snapshot: the memory held on every device, and the events before it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gmlake.pictures.drawable import Drawable
from gmlake.pictures.figures import Report
from gmlake.snapshots.capture import document_of
from gmlake.snapshots.figures_of import report_of_snapshot
from gmlake.snapshots.files import read_file, save, to_json, understand
from gmlake.snapshots.model import DeviceSnapshot
from gmlake.snapshots.sites import Site
from gmlake.snapshots.summary import snapshot_tables
from gmlake.snapshots.traces import of_trace
from gmlake.tables import Printed, Tables
from gmlake.trace.layout import Records
from gmlake.trace.trace import Trace

if TYPE_CHECKING:
    from gmlake import _core


class Recorded(Protocol):
    """What has a snapshot, as a Recording."""

    @property
    def snapshot(self) -> Snapshot:
        """The events so far, or those at the end."""


Source: TypeAlias = "Snapshot | Recorded | str | os.PathLike[str] | dict[str, Any] | list[Any]"


@dataclass(eq=False)
class Snapshot(Drawable, Printed):
    """The memory held on every device, and the events before it; prints as a table.

    devices: in ascending order; empty if nothing is held. sites: the places that made requests, by
    the numbers in the arrays. settings: the allocator's, if a file has them. name: its name in
    reports; the file's name if it was loaded.
    """

    devices: tuple[DeviceSnapshot, ...] = ()
    sites: dict[int, Site] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __repr__(self) -> str:
        return f"<gmlake.Snapshot: {', '.join(map(repr, self.devices)) or 'nothing held'}>"

    def _tables(self) -> Tables:
        yield from snapshot_tables(self)

    def __getitem__(self, device: int) -> DeviceSnapshot:
        """Return one device by its ordinal; KeyError if it is missing."""
        for one in self.devices:
            if one.device == device:
                return one
        raise KeyError(device)

    def __iter__(self) -> Iterator[DeviceSnapshot]:
        """Iterate over the devices, in ascending order."""
        return iter(self.devices)

    def __len__(self) -> int:
        """Return the number of devices."""
        return len(self.devices)

    @property
    def fragmentation(self) -> dict[int, float]:
        """1 - largest obtainable / free, by device, from 0 to 1; 0 if nothing is free."""
        return {one.device: one.fragmentation for one in self.devices}

    def save(self, path: str | Path) -> None:
        """Write it as a PyTorch snapshot: JSON if the name ends in .json, otherwise a pickle.

        Either opens in pytorch.org/memory_viz and in `python -m torch.cuda._memory_viz`, and
        gmlake.load() reads it back. Every byte of memory is there once: the contents of a stitched
        view at the view's addresses, everything else where it lies. A name that ends in .gmtrace
        is gmlake's compact format, which has the events of one device without call paths.

        Raises OSError, and Error for an address of 2^53 or more, which the viewer cannot hold.
        """
        save(self, path)

    def to_json(self) -> str:
        """Return the text that save("x.json") writes."""
        return to_json(self)

    @staticmethod
    def of_events(requests: Records, **columns: Any) -> Snapshot:  # noqa: ANN401
        """Return a recording of one device, made of its events.

        requests: dtype gmlake.trace.REQUEST; ids are dense, 0, 1, ..., in any order. columns:
        further ones of gmlake.trace.Trace by name, as labels and name. Raises TraceError if they
        contradict each other.
        """
        return of_one_trace(Trace(requests, **columns))

    def of_device(self, device: int | None) -> Snapshot:
        """Return it with one device only; None: as it is. ValueError if it is missing."""
        if device is None:
            return self
        chosen = tuple(one for one in self.devices if one.device == device)
        if not chosen:
            known = ", ".join(str(one.device) for one in self.devices) or "none"
            raise ValueError(f"it holds no events of device {device}; its devices: {known}")
        return replace(self, devices=chosen)

    def report(self) -> Report:
        """Return the figures: a timeline, a map, blocks at the peak, a packing."""
        return report_of_snapshot(self)


def load(source: Source) -> Snapshot:
    """Return a recording as a Snapshot; what every function here that takes one accepts.

    source: the path of a file of Snapshot.save(), of a snapshot of PyTorch (pickle or JSON, also in
    gzip, by torch.save() or in a page of PyTorch's viewer) or of a .gmtrace; or what
    torch.cuda.memory._snapshot() returns; or a Recording. A Snapshot is returned as it is.

    Nothing in a file is executed. Raises TraceError for anything unreadable, OSError never, and
    TypeError for anything else.
    """
    if isinstance(source, Snapshot):
        return source
    held = getattr(source, "snapshot", None)
    if isinstance(held, Snapshot):
        return held
    if isinstance(source, (dict, list)):
        found = Snapshot(*understand(source), name="recording")
    elif isinstance(source, (str, os.PathLike)):
        found = Snapshot(*read_file(Path(source)))
        found.name = os.fsencode(Path(source).name).decode("utf-8", "backslashreplace")
    else:
        raise TypeError(f"expected a recording or the path of one, not a {type(source).__name__}")
    for one in found.devices:
        is_one = len(found.devices) == 1
        one.trace.name = found.name if is_one else f"{found.name}:{one.device}"
    return found


def of_one_trace(trace: Trace) -> Snapshot:
    """Return the snapshot of a trace. Raises TraceError if it contradicts itself."""
    return Snapshot((of_trace(trace),), settings=trace.settings, name=trace.name)


def snapshot(device: int | None = None) -> Snapshot:
    """Take a snapshot of PyTorch's memory in this process, of all devices or of one.

    It has the events of a recording that is on. Empty where PyTorch does not use CUDA. Raises
    ValueError for a device without memory.
    """
    document = None
    if "torch" in sys.modules:
        document = import_module("gmlake.pytorch.documents").document()
    return (Snapshot() if document is None else snapshot_of(document)).of_device(device)


def snapshot_of(document: dict[str, Any]) -> Snapshot:
    """Return a snapshot of this process, without a device that nothing was asked of."""
    found = load(document)
    used = tuple(one for one in found.devices if len(one.events) or len(one.spans) or one.counters)
    return replace(found, devices=used)


def snapshot_lake(lake: _core.Lake, device: int = 0) -> Snapshot:
    """Take a snapshot of one lake. Raises ValueError if it is closed."""
    return snapshot_of(document_of(lake, device))


def report_of(source: Drawable | Source) -> Report:
    """Return the figures of a recording, a replay or another result.

    Raises TraceError for a recording that contradicts itself, TypeError for anything else.
    """
    return source.report() if isinstance(source, Drawable) else load(source).report()


@dataclass(frozen=True)
class MemorySummary(Printed):
    """The table that memory_summary() returns; print() shows it."""

    seen: Snapshot

    def __repr__(self) -> str:
        """Return the table, for shells that show results."""
        return str(self)

    def _tables(self) -> Tables:
        yield from snapshot_tables(self.seen)


def memory_summary(device: int | None = None) -> MemorySummary:
    """Return a table of PyTorch's memory, on all devices or on one.

    print() shows it. Raises ValueError for a device without memory.
    """
    return MemorySummary(snapshot(device))
