"""Snapshot: what is held on every device, and the events before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from gmlake.pictures.figures import Report
    from gmlake.snapshots.model import DeviceSnapshot, Site


@dataclass(eq=False)
class Snapshot:
    """What is held on every device, and the events before it; prints as a table.

    devices: in ascending order; empty where nothing is held. sites: where memory was asked for, by
    the numbers in the arrays. settings: the allocator's, where a file tells them. name: what to
    call it; the file's name where it was loaded.
    """

    devices: tuple[DeviceSnapshot, ...] = ()
    sites: dict[int, Site] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __repr__(self) -> str:
        """Say what it holds, not all of it."""
        return f"<gmlake.Snapshot: {', '.join(map(repr, self.devices)) or 'nothing held'}>"

    def __str__(self) -> str:
        """Render the table as plain text."""
        from gmlake.tables import as_text

        return as_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table."""
        from gmlake.snapshots.summary import snapshot_tables

        yield from snapshot_tables(self)

    def __getitem__(self, device: int) -> DeviceSnapshot:
        """Return one device by its ordinal; KeyError where it is not there."""
        for one in self.devices:
            if one.device == device:
                return one
        raise KeyError(device)

    @property
    def fragmentation(self) -> dict[int, float]:
        """1 - largest obtainable / free, by device, from 0 to 1; 0 where nothing is free."""
        return {one.device: one.fragmentation for one in self.devices}

    def save(self, path: str | Path) -> None:
        """Write it as PyTorch's snapshot: JSON where the name ends in .json, else a pickle.

        Either opens in pytorch.org/memory_viz and in `python -m torch.cuda._memory_viz`, and
        Snapshot.load() reads it back. Every byte of memory is drawn once: what a stitched view
        holds at the view's addresses, everything else where it lies. What views held earlier than
        the end is drawn while they held it, and is not taken out of where it lay.

        Raises OSError, and Error for an address of 2^53 or more, which the viewer cannot hold.
        """
        from gmlake.snapshots.files import save

        save(self, path)

    def to_json(self) -> str:
        """Return what save("x.json") writes."""
        from gmlake.snapshots.files import to_json

        return to_json(self)

    def to_perfetto(self, path: str | Path, smallest: int | str = "1MiB") -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing.

        A counter of live bytes and, where it is known, of reserved bytes for each device, a slice
        for each block of at least `smallest` bytes, and instants for marks and refusals. Raises
        OSError, ValueError where `smallest` is no size.
        """
        from gmlake.snapshots.perfetto import save_perfetto

        save_perfetto(self, path, smallest)

    @staticmethod
    def load(path: str | Path) -> Snapshot:
        """Read what save() wrote, a snapshot of PyTorch, or a gmlake trace, as far as it tells.

        Nothing in the file is executed. Raises TraceError for anything unreadable, OSError never.
        """
        from gmlake.snapshots.files import load

        return load(path)

    def report(self) -> Report:
        """Return it as figures to be drawn: a timeline, a map, blocks at the peak, a packing."""
        from gmlake.snapshots.figures_of import report_of

        return report_of(self)

    def _repr_html_(self) -> str:
        """Draw it in a notebook."""
        from gmlake.snapshots.summary import as_html

        return as_html(self)
