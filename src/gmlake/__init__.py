"""gmlake: a GPU memory allocator for PyTorch that defragments by remapping.

    import gmlake

    with gmlake.Lake(driver="sim", policy="stitch", capacity="80GiB") as lake:
        block = lake.allocate(1 << 30)
        lake.free(block)

    print(gmlake.replay("snapshot.pickle", policies="all"))

    with gmlake.enabled():  # PyTorch's memory comes from gmlake
        train()

Names are loaded on first use, so that importing gmlake costs next to nothing; PyTorch is
imported by enabled() and its kin only. The classes of what functions return are in their modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake import annexes
from gmlake.lazily import lazily

if TYPE_CHECKING:
    from gmlake._core import __version__ as __version__
    from gmlake.annexes import *  # noqa: F403 (the only list of their names)
    from gmlake.errors import (
        DriverError as DriverError,
        Error as Error,
        GmlakeWarning as GmlakeWarning,
        OutOfMemoryError as OutOfMemoryError,
        TraceError as TraceError,
        UnsupportedError as UnsupportedError,
    )
    from gmlake.fitting import fit as fit
    from gmlake.lake import Lake as Lake
    from gmlake.pytorch import (
        disable as disable,
        enable as enable,
        enabled as enabled,
        is_enabled as is_enabled,
    )
    from gmlake.pytorch.elastic import elastic as elastic
    from gmlake.pytorch.exporting import exportable as exportable, is_exportable as is_exportable
    from gmlake.pytorch.lakes import stream_pairs as stream_pairs
    from gmlake.pytorch.recording import record as record
    from gmlake.pytorch.sharing import sharing as sharing
    from gmlake.pytorch.sleeping import (
        on_sleep as on_sleep,
        region as region,
        regions as regions,
        sleep as sleep,
        wake as wake,
    )
    from gmlake.pytorch.turns import graphs_take_turns as graphs_take_turns
    from gmlake.replayed import replay as replay
    from gmlake.settings import knobs as knobs, policies as policies
    from gmlake.snapshots.comparing import compare as compare
    from gmlake.snapshots.queries import query as query
    from gmlake.snapshots.whole import (
        Snapshot as Snapshot,
        load as load,
        memory_summary as memory_summary,
        snapshot as snapshot,
    )
    from gmlake.watching import publish as publish

_NAMES = {
    "gmlake._core": "__version__",
    "gmlake.errors": (
        "DriverError Error GmlakeWarning OutOfMemoryError TraceError UnsupportedError"
    ),
    "gmlake.fitting": "fit",
    "gmlake.lake": "Lake",
    "gmlake.pytorch": "disable enable enabled is_enabled",
    "gmlake.pytorch.elastic": "elastic",
    "gmlake.pytorch.exporting": "exportable is_exportable",
    "gmlake.pytorch.lakes": "stream_pairs",
    "gmlake.pytorch.recording": "record",
    "gmlake.pytorch.sharing": "sharing",
    "gmlake.pytorch.sleeping": "on_sleep region regions sleep wake",
    "gmlake.pytorch.turns": "graphs_take_turns",
    "gmlake.replayed": "replay",
    "gmlake.settings": "knobs policies",
    "gmlake.snapshots.comparing": "compare",
    "gmlake.snapshots.queries": "query",
    "gmlake.snapshots.whole": "Snapshot load memory_summary snapshot",
    "gmlake.watching": "publish",
    **annexes.names(),
}
"""The public names of each module."""

__all__ = [name for text in _NAMES.values() for name in text.split()]

__getattr__ = lazily(__name__, _NAMES)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
