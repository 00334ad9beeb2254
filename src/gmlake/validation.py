"""Checks the `caching` policy against PyTorch: same requests, same addresses?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake import _core
from gmlake.errors import TraceError, blaming_trace
from gmlake.lake import Lake
from gmlake.trace.layout import Kind, Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderResult

    from gmlake.trace import Trace

_CAPACITY: Final = 1 << 46
_SEGMENT_RECORD: Final = np.dtype(
    [("address", "<u8"), ("size_bytes", "<u8"), ("stream", "<u8"), ("is_small", "<u8")]
)
_BLOCK_RECORD: Final = np.dtype(
    [("id", "<u8"), ("address", "<u8"), ("block_bytes", "<u8"), ("requested_bytes", "<u8")]
)


@dataclass(frozen=True)
class ValidationResult:
    """How far `caching` and the recording agree on one trace.

    allocations: recorded allocations; addresses_matched: those placed at the recorded address.
    segments, final_blocks: recorded at the end; *_matched: found in the policy just so (address,
        size, and for blocks whether used).
    """

    trace: str
    allocations: int
    addresses_matched: int
    segments: int
    segments_matched: int
    final_blocks: int
    final_blocks_matched: int


@dataclass(frozen=True)
class ValidationReport:
    """The results of one or more traces; prints as a table."""

    results: tuple[ValidationResult, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return {"results": [...]}, as `gmlake validate --json` prints it."""
        return {"results": [asdict(result) for result in self.results]}

    def __add__(self, other: ValidationReport) -> ValidationReport:
        """Join the results of two reports."""
        return ValidationReport(self.results + other.results)

    def __str__(self) -> str:
        """Render the table as plain text."""
        from gmlake.tables import as_text

        return as_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table."""
        from gmlake.tables import validation_table

        yield validation_table(self)


def validate(trace: Trace) -> ValidationReport:
    """Put `caching` into the recorded starting state, replay, and compare with the recording.

    The simulated driver hands out segments where the recording says they were; everything else is
    the policy's own choice. Source of the algorithm: PyTorch's CUDACachingAllocator.

    Raises TraceError for a trace without recorded addresses or segments, or one recorded with
    expandable segments, where the starting state contradicts itself, and for recorded settings
    that PyTorch would not accept.
    """
    trace.check()
    _check_has_state(trace)
    requests = trace.requests_with_trims()
    with blaming_trace(), Lake("sim", "caching", _CAPACITY, **_settings(trace)) as lake:
        run = _core.Replay(lake, trace.id_count)
        _restore(run, trace)
        run.follow_segments()
        addresses = np.zeros(len(requests), np.uint64)
        run.run(requests.view(np.uint8), addresses.view(np.uint8))
        regions = lake.regions()
    is_alloc = requests["kind"] == Kind.ALLOC
    matched = addresses[is_alloc] == requests["address"][is_alloc]
    segments, blocks = _compare(trace, regions)
    result = ValidationResult(
        trace=trace.name,
        allocations=int(np.count_nonzero(is_alloc)),
        addresses_matched=int(np.count_nonzero(matched)),
        segments=len(trace.final_segments),
        segments_matched=segments,
        final_blocks=len(trace.final_blocks),
        final_blocks_matched=blocks,
    )
    return ValidationReport((result,))


def _check_has_state(trace: Trace) -> None:
    if trace.is_expandable:
        reason = (
            "recorded with expandable segments; validate compares the policy caching, "
            "so record without them"
        )
        raise TraceError(reason)
    allocs = trace.requests[trace.requests["kind"] == Kind.ALLOC]
    if (allocs["address"] == 0).any():
        reason = "holds no recorded addresses to compare with; record it with PyTorch"
        raise TraceError(reason)


def _settings(trace: Trace) -> dict[str, Any]:
    """Return the recorded settings that change placement, as knobs."""
    settings: dict[str, Any] = {}
    limit = trace.settings.get("max_split_size", -1)
    if type(limit) is int and limit > 0:
        settings["max_split_size"] = limit
    divisions = trace.settings.get("roundup_power2_divisions", {})
    if isinstance(divisions, dict):
        for interval, count in divisions.items():
            if type(count) is int and count > 1:
                settings[f"roundup_power2_divisions.{interval}"] = count
    return settings


def _restore(run: _core.Replay, trace: Trace) -> None:
    segments = np.zeros(len(trace.start_segments), _SEGMENT_RECORD)
    for name in _SEGMENT_RECORD.names or ():
        segments[name] = trace.start_segments[name]
    blocks = np.zeros(len(trace.start_blocks), _BLOCK_RECORD)
    for name in _BLOCK_RECORD.names or ():
        blocks[name] = trace.start_blocks[name]
    _check_blocks_inside(trace.start_segments, trace.start_blocks)
    run.restore(segments.view(np.uint8), blocks.view(np.uint8))


def _check_blocks_inside(segments: Records, blocks: Records) -> None:
    if not len(blocks):
        return
    home = np.searchsorted(segments["address"], blocks["address"], side="right").astype(int) - 1
    ends = np.append(segments["address"] + segments["size_bytes"], np.uint64(0))
    outside = (home < 0) | (blocks["address"] + blocks["block_bytes"] > ends[home])
    if outside.any():
        address = int(blocks["address"][np.argmax(outside)])
        reason = f"frees {address:#x}, which lies in no segment of the recording"
        raise TraceError(reason)


def _compare(trace: Trace, regions: list[_core.Region]) -> tuple[int, int]:
    """Return how many of the recorded final segments and blocks the policy holds as well."""
    held_segments = {
        (region["address"], region["size"], region["stream"], region["is_small"])
        for region in regions
    }
    held_blocks = {
        (address, size, is_used)
        for region in regions
        for address, size, _, is_used in region["ranges"]
    }
    segments = _rows(trace.final_segments, "address", "size_bytes", "stream", "is_small")
    blocks = _rows(trace.final_blocks, "address", "block_bytes", "is_used")
    return (
        sum(segment in held_segments for segment in segments),
        sum(block in held_blocks for block in blocks),
    )


def _rows(table: Records, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column].tolist() for column in columns), strict=True)
