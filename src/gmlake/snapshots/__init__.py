"""Snapshots of memory: reserved and live at the peak, in files and as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.snapshots.model import PIECE, DeviceSnapshot
    from gmlake.snapshots.peaks import Lives, Peak
    from gmlake.snapshots.sites import Site
    from gmlake.snapshots.whole import (
        MemorySummary,
        Snapshot,
        memory_summary,
        report_of,
        snapshot,
        snapshot_lake,
    )
    from gmlake.trace.layout import RANGE, SPAN, SpanKind

__all__ = [
    "PIECE",
    "RANGE",
    "SPAN",
    "DeviceSnapshot",
    "Lives",
    "MemorySummary",
    "Peak",
    "Site",
    "Snapshot",
    "SpanKind",
    "memory_summary",
    "report_of",
    "snapshot",
    "snapshot_lake",
]

__getattr__ = lazily(
    __name__,
    {
        "gmlake.snapshots.model": "PIECE DeviceSnapshot",
        "gmlake.trace.layout": "RANGE SPAN SpanKind",
        "gmlake.snapshots.peaks": "Lives Peak",
        "gmlake.snapshots.sites": "Site",
        "gmlake.snapshots.whole": "MemorySummary Snapshot memory_summary report_of snapshot "
        "snapshot_lake",
    },
)
