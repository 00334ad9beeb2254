"""Notes taken beside a recording of PyTorch, and the agreement of a policy with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Reading:
    """Statistics of PyTorch at one moment of a recording.

    events: memory events of the device before it; marks do not count.
    stats: torch.cuda.memory_stats() then, by its flat names ("reserved_bytes.all.peak").
    is_trim: the program called torch.cuda.empty_cache() right after it.
    label: the name of the moment.
    """

    events: int
    stats: Mapping[str, int]
    is_trim: bool = False
    label: str = ""


@dataclass(frozen=True)
class Notes:
    """Facts about a recording that its snapshot does not contain.

    readings: in order of time. They also record the calls of empty_cache, which are otherwise
        guessed from the segments that were freed.
    capacity_bytes: the memory that the device had for PyTorch.
    limit_bytes: the limit of set_per_process_memory_fraction, None if it was not called.
    """

    readings: tuple[Reading, ...]
    capacity_bytes: int
    limit_bytes: int | None = None


def load_notes(path: Path) -> Notes:
    """Read the notes that benchmarks/workloads/record.py writes beside a snapshot.

    The file is JSON: {"limit_bytes": bytes or null, "marks": [{"label", "events", "stats",
    "is_trim", "free_bytes"}, ...]}; the first mark comes before the first allocation, where
    free_bytes is what the device has for PyTorch.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    readings = tuple(
        Reading(mark["events"], mark["stats"], mark["is_trim"], mark["label"])
        for mark in data["marks"]
    )
    return Notes(readings, data["marks"][0]["free_bytes"], data["limit_bytes"])


@dataclass(frozen=True)
class ValidationResult:
    """The agreement of a policy and the recording on one trace.

    policy: `caching`, or `expandable` if the recording has expandable segments.
    allocations: recorded allocations; addresses_matched: those placed at the recorded address,
        with expandable segments at the recorded place in the reservation of stream and pool.
    segments, final_blocks: recorded at the end; *_matched: identical in the policy (address,
        size, and for blocks whether used).
    statistics: values of torch.cuda.memory_stats() in the notes; *_matched: those that are equal.
    reserved_events: events after which reserved bytes were compared; *_matched: those after which
        both differ by less than a granule.
    peak_reserved_bytes: of the policy; recorded_peak_bytes: of PyTorch.
    pooled_allocations: those in private pools (CUDA graphs, MemPool).
    remarks: anything else that could not be compared or followed, in words.
    differences: the first few, in words.

    Parts that are not compared count 0 of 0: final segments and blocks of `expandable`, reserved
    bytes of `caching`, which follow from the addresses, and statistics without notes.
    """

    trace: str
    policy: str
    allocations: int
    addresses_matched: int
    segments: int
    segments_matched: int
    final_blocks: int
    final_blocks_matched: int
    statistics: int
    statistics_matched: int
    reserved_events: int
    reserved_matched: int
    peak_reserved_bytes: int
    recorded_peak_bytes: int
    pooled_allocations: int
    remarks: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether all comparisons agree."""
        return (
            self.addresses_matched == self.allocations
            and self.segments_matched == self.segments
            and self.final_blocks_matched == self.final_blocks
            and self.statistics_matched == self.statistics
            and self.reserved_matched == self.reserved_events
            and self.peak_reserved_bytes == self.recorded_peak_bytes
        )
