"""Snapshot: the memory held on every device, and the events before it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmlake.pictures.drawable import Drawable
from gmlake.snapshots.capture import document_of
from gmlake.snapshots.figures_of import report_of_snapshot
from gmlake.snapshots.files import load, save, to_json, understand
from gmlake.snapshots.summary import snapshot_tables
from gmlake.snapshots.traces import of_trace
from gmlake.tables import Printed
from gmlake.trace.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderResult

    from gmlake import _core
    from gmlake.pictures.figures import Report
    from gmlake.snapshots.model import DeviceSnapshot
    from gmlake.snapshots.sites import Site


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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
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
        Snapshot.load() reads it back. Every byte of memory is there once: the contents of a
        stitched view at the view's addresses, everything else where it lies.

        Raises OSError, and Error for an address of 2^53 or more, which the viewer cannot hold.
        """
        save(self, path)

    def to_json(self) -> str:
        """Return the text that save("x.json") writes."""
        return to_json(self)

    @staticmethod
    def load(path: str | Path) -> Snapshot:
        """Read a file of save(), a PyTorch snapshot, or a gmlake trace, as far as it has the data.

        Nothing in the file is executed. Raises TraceError for anything unreadable, OSError never.
        """
        devices, sites, settings = load(path)
        name = os.fsencode(Path(path).name).decode("utf-8", "backslashreplace")
        for one in devices:
            one.trace.name = name
        return Snapshot(devices, sites, settings, name)

    def report(self) -> Report:
        """Return the figures: a timeline, a map, blocks at the peak, a packing."""
        return report_of_snapshot(self)


def snapshot(device: int | None = None) -> Snapshot:
    """Take a snapshot of PyTorch's memory in this process, of all devices or of one.

    It has the events of a recording that is on. Empty where PyTorch does not use CUDA. Raises
    ValueError for a device without memory.
    """
    found = Snapshot()
    if "torch" in sys.modules:
        document = import_module("gmlake.pytorch.documents").document()
        found = found if document is None else snapshot_of(document)
    if device is None:
        return found
    if all(one.device != device for one in found.devices):
        held = ", ".join(str(one.device) for one in found.devices) or "none"
        msg = f"nothing is held on device {device}; devices with memory: {held}"
        raise ValueError(msg)
    return replace(found, devices=(found[device],))


def snapshot_of(document: object) -> Snapshot:
    """Return what torch.cuda.memory._snapshot() returns as a snapshot. Raises TraceError."""
    devices, sites, settings = understand(document)
    used = tuple(one for one in devices if len(one.events) or len(one.spans))
    return Snapshot(used, sites, settings)


def snapshot_lake(lake: _core.Lake, device: int = 0) -> Snapshot:
    """Take a snapshot of one lake. Raises ValueError if it is closed."""
    return snapshot_of(document_of(lake, device))


def report_of(source: Trace | Drawable) -> Report:
    """Return the figures of a snapshot, a trace, a replay or another result.

    Raises TraceError for a trace that contradicts itself, TypeError for anything else.
    """
    if isinstance(source, Trace):
        source = Snapshot((of_trace(source),), name=source.name)
    if not isinstance(source, Drawable):
        msg = f"a {type(source).__name__} has nothing to draw"
        raise TypeError(msg)
    return source.report()


@dataclass(frozen=True)
class MemorySummary(Printed):
    """The table that memory_summary() returns; print() shows it."""

    seen: Snapshot

    def __repr__(self) -> str:
        """Return the table, for shells that show results."""
        return str(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from snapshot_tables(self.seen)


def memory_summary(device: int | None = None) -> MemorySummary:
    """Return a table of PyTorch's memory, on all devices or on one.

    print() shows it. Raises ValueError for a device without memory.
    """
    return MemorySummary(snapshot(device))
