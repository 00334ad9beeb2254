"""Snapshots of memory: reserved and live at the peak, in files and as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake.snapshots.model import PIECE as PIECE, DeviceSnapshot as DeviceSnapshot
    from gmlake.snapshots.peaks import Lives as Lives, Peak as Peak
    from gmlake.snapshots.sites import Site as Site
    from gmlake.snapshots.whole import (
        MemorySummary as MemorySummary,
        Snapshot as Snapshot,
        memory_summary as memory_summary,
        report_of as report_of,
        snapshot as snapshot,
        snapshot_lake as snapshot_lake,
    )
    from gmlake.trace.layout import RANGE as RANGE, SPAN as SPAN, SpanKind as SpanKind

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
