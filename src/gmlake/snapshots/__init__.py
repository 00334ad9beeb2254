"""Snapshots of memory: what is held, what was live at the peak, in files and as figures."""

from gmlake.snapshots.capture import snapshot, snapshot_lake
from gmlake.snapshots.figures_of import report_of
from gmlake.snapshots.model import PIECE, RANGE, REGION, DeviceSnapshot, RegionKind, Site
from gmlake.snapshots.peaks import Lives, Peak
from gmlake.snapshots.summary import MemorySummary, memory_summary
from gmlake.snapshots.whole import Snapshot

__all__ = [
    "PIECE",
    "RANGE",
    "REGION",
    "DeviceSnapshot",
    "Lives",
    "MemorySummary",
    "Peak",
    "RegionKind",
    "Site",
    "Snapshot",
    "memory_summary",
    "report_of",
    "snapshot",
    "snapshot_lake",
]
