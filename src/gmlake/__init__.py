"""gmlake: a GPU memory allocator for PyTorch that defragments by remapping.

    import gmlake

    with gmlake.Lake(driver="sim", policy="stitch", capacity="80GiB") as lake:
        block = lake.allocate(1 << 30)
        lake.free(block)

    print(gmlake.replay("snapshot.pickle", policies="all"))

    with gmlake.enabled():  # PyTorch's memory comes from gmlake
        train()

Names are loaded on first use, so that importing gmlake costs next to nothing; PyTorch is
imported by enabled() and its kin only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake import annexes
from gmlake.errors import (
    DriverError,
    Error,
    GmlakeWarning,
    OutOfMemoryError,
    TraceError,
    UnsupportedError,
)
from gmlake.lazily import lazily
from gmlake.units import format_size, parse_size

if TYPE_CHECKING:
    from gmlake._core import Block, device_describe
    from gmlake._core import __version__ as __version__
    from gmlake.annexes import *  # noqa: F403 (the only list of their names)
    from gmlake.fitting import FitReport, fit
    from gmlake.lake import ElasticMemory, Lake
    from gmlake.pytorch import Session, disable, enable, enabled, is_enabled
    from gmlake.pytorch.communicators import CommunicatorMemory
    from gmlake.pytorch.elastic import Elastic, elastic
    from gmlake.pytorch.exporting import exportable, is_exportable
    from gmlake.pytorch.lakes import stream_pairs
    from gmlake.pytorch.recording import Recording, record
    from gmlake.pytorch.sharing import Sharing, sharing
    from gmlake.pytorch.sleeping import (
        MemoryRegion,
        SleepReport,
        on_sleep,
        region,
        regions,
        sleep,
        wake,
    )
    from gmlake.pytorch.turns import graphs_take_turns
    from gmlake.replayed import replay
    from gmlake.replaying import ReplayReport, ReplayResult
    from gmlake.settings import knobs, policies
    from gmlake.snapshots.comparing import CompareReport, compare
    from gmlake.snapshots.queries import QueryReport, query
    from gmlake.snapshots.whole import Snapshot, load, memory_summary, report_of, snapshot
    from gmlake.watching import publish

__all__ = [
    "Block",
    "CommunicatorMemory",
    "CompareReport",
    "DriverError",
    "Elastic",
    "ElasticMemory",
    "Error",
    "FitReport",
    "GmlakeWarning",
    "Lake",
    "MemoryRegion",
    "OutOfMemoryError",
    "QueryReport",
    "Recording",
    "ReplayReport",
    "ReplayResult",
    "Session",
    "Sharing",
    "SleepReport",
    "Snapshot",
    "TraceError",
    "UnsupportedError",
    "__version__",
    "compare",
    "device_describe",
    "disable",
    "elastic",
    "enable",
    "enabled",
    "exportable",
    "fit",
    "format_size",
    "graphs_take_turns",
    "is_enabled",
    "is_exportable",
    "knobs",
    "load",
    "memory_summary",
    "on_sleep",
    "parse_size",
    "policies",
    "publish",
    "query",
    "record",
    "region",
    "regions",
    "replay",
    "report_of",
    "sharing",
    "sleep",
    "snapshot",
    "stream_pairs",
    "wake",
]

_NAMES = {
    "gmlake._core": "Block device_describe __version__",
    "gmlake.fitting": "FitReport fit",
    "gmlake.lake": "ElasticMemory Lake",
    "gmlake.pytorch": "Session disable enable enabled is_enabled",
    "gmlake.pytorch.communicators": "CommunicatorMemory",
    "gmlake.pytorch.elastic": "Elastic elastic",
    "gmlake.pytorch.exporting": "exportable is_exportable",
    "gmlake.pytorch.recording": "Recording record",
    "gmlake.pytorch.sharing": "Sharing sharing",
    "gmlake.pytorch.sleeping": ("MemoryRegion SleepReport on_sleep region regions sleep wake"),
    "gmlake.pytorch.lakes": "stream_pairs",
    "gmlake.pytorch.turns": "graphs_take_turns",
    "gmlake.replayed": "replay",
    "gmlake.replaying": "ReplayReport ReplayResult",
    "gmlake.settings": "knobs policies",
    "gmlake.snapshots.comparing": "CompareReport compare",
    "gmlake.snapshots.queries": "QueryReport query",
    "gmlake.snapshots.whole": "Snapshot load memory_summary report_of snapshot",
    "gmlake.watching": "publish",
}
"""The public names of each module."""

if TYPE_CHECKING:
    __all__ += annexes.__all__
else:
    _ANNEXED = annexes.names()
    _NAMES |= _ANNEXED
    __all__ += [name for text in _ANNEXED.values() for name in text.split()]

__getattr__ = lazily(__name__, _NAMES)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
