"""Checks the policies that model PyTorch against PyTorch: the same memory for the same requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmlake.snapshots.whole import load
from gmlake.validating.comparison import compare
from gmlake.validating.validation_report import (
    Notes,
    Reading,
    ValidationReport,
    ValidationResult,
    load_notes,
)

if TYPE_CHECKING:
    from gmlake.snapshots.whole import Source

__all__ = [
    "Notes",
    "Reading",
    "ValidationReport",
    "ValidationResult",
    "load_notes",
    "validate",
]


def validate(recording: Source, notes: Notes | None = None) -> ValidationReport:
    """Replay each recorded device under the policy that models its allocator, and compare the two.

    Without expandable segments that is `caching`: it starts in the recorded state, and the
    simulated driver returns segments at the recorded addresses; everything else is the policy's own
    choice. With them it is `expandable`, from the first allocation on. Source of the algorithms:
    PyTorch's CUDACachingAllocator.

    recording: as gmlake.load() takes it.

    With notes, statistics are compared at each reading, and requests that PyTorch refused are
    repeated and must be refused. Recorded settings (max_split_size, large_segment_size_mb, ...)
    become the policy's; unsupported ones become remarks of the result.

    Each private pool (CUDA graphs, MemPool) is a heap of its own. Events name it from PyTorch 2.12
    on; before, memory that a private pool released earlier cannot be distinguished from other
    memory. Notes are not used where there are private pools.

    Raises TraceError for a recording without recorded addresses or segments, one with expandable
    segments that does not begin with the first allocation, where the starting state contradicts
    itself, and for recorded settings that PyTorch would not accept.
    """
    return ValidationReport(tuple(compare(seen.trace, notes) for seen in load(recording)))
