"""Notes taken beside a recording of PyTorch, and the agreement of a policy with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gmlake.errors import TraceError
from gmlake.file_bytes import UnreadableError, contents
from gmlake.printable import printable
from gmlake.tables import Printed
from gmlake.validating.validation_tables import validation_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, ConsoleOptions, RenderResult


MAX_NOTES_BYTES: Final = 1 << 28
"""Most bytes of a file of notes that are read."""


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


def load_notes(path: str | Path) -> Notes:
    """Read the notes that benchmarks/workloads/record.py writes beside a snapshot.

    The file is JSON: {"limit_bytes": bytes or null, "marks": [{"label", "events", "stats",
    "is_trim", "free_bytes"}, ...]}; the first mark comes before the first allocation, where
    free_bytes is what the device has for PyTorch.

    Raises TraceError, with the file's name, for any other file.
    """
    try:
        return _notes_of(json.loads(contents(Path(path), MAX_NOTES_BYTES)))
    except UnreadableError as problem:
        reason = str(problem)
    except TraceError as problem:
        reason = problem.reason
    except KeyError as problem:
        reason = f"not notes about a recording: there is no {problem}"
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as problem:
        reason = f"not notes about a recording: {printable(str(problem)[:80])}"
    except RecursionError:
        reason = "not notes about a recording: the JSON is nested too deeply"
    raise TraceError(reason, path=str(path))


def _notes_of(data: Any) -> Notes:  # noqa: ANN401 - whatever JSON holds
    readings = tuple(
        Reading(
            int(mark["events"]),
            {str(name): int(value) for name, value in mark["stats"].items()},
            bool(mark["is_trim"]),
            str(mark["label"]),
        )
        for mark in data["marks"]
    )
    capacity_bytes = int(data["marks"][0]["free_bytes"])
    limit_bytes = None if data["limit_bytes"] is None else int(data["limit_bytes"])
    numbers = [reading.events for reading in readings]
    numbers += [capacity_bytes - 1, (limit_bytes or capacity_bytes) - 1]
    if any(not 0 <= number < 1 << 48 for number in numbers):
        reason = "not notes about a recording: a number is out of range"
        raise TraceError(reason)
    return Notes(readings, capacity_bytes, limit_bytes)


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


@dataclass(frozen=True)
class ValidationReport(Printed):
    """The results of one or more traces; prints as a table."""

    results: tuple[ValidationResult, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all comparisons agree, in every result."""
        return all(result.is_complete for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return {"results": [...]}, as `gmlake validate --json` prints it."""
        return {"results": [asdict(result) for result in self.results]}

    def __add__(self, other: ValidationReport) -> ValidationReport:
        return ValidationReport(self.results + other.results)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from validation_tables(self)
