"""The results of a validation as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from gmlake.printable import printable
from gmlake.tables import new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from validating.report import ValidationResult


def validation_tables(results: Sequence[ValidationResult]) -> Iterator[RenderableType]:
    """Yield a table for each policy, remarks, and the first differences; these are red."""
    caching = [result for result in results if result.policy == "caching"]
    expandable = [result for result in results if result.policy == "expandable"]
    if caching:
        yield _caching_table(caching)
    if expandable:
        yield _expandable_table(expandable)
    for result in results:
        for remark in _remarks(result):
            yield Text(f"{printable(result.trace)}: {printable(remark)}")
    for result in results:
        for difference in result.differences:
            yield Text(f"{printable(result.trace)}: {printable(difference)}", style="red")


def _remarks(result: ValidationResult) -> Iterator[str]:
    if result.pooled_allocations:
        yield f"of the allocations, {result.pooled_allocations:,} are in private pools"
    yield from result.remarks


def _validation_table(policy: str, columns: Iterable[str]) -> Table:
    table = new_table(Text(f"{policy} against PyTorch's recording: what matches"))
    table.add_column("trace")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _caching_table(results: list[ValidationResult]) -> Table:
    has_statistics = any(result.statistics for result in results)
    columns = ["addresses", "segments\nat the end", "blocks\nat the end"]
    table = _validation_table("caching", columns + ["statistics"] * has_statistics)
    for result in results:
        cells = [
            _share(result.addresses_matched, result.allocations),
            _share(result.segments_matched, result.segments),
            _share(result.final_blocks_matched, result.final_blocks),
            _share(result.statistics_matched, result.statistics),
        ]
        table.add_row(Text(printable(result.trace)), *cells[: len(table.columns) - 1])
    return table


def _expandable_table(results: list[ValidationResult]) -> Table:
    has_statistics = any(result.statistics for result in results)
    columns = ["addresses", "reserved\nafter events", "reserved\nat the peak", "PyTorch's\npeak"]
    table = _validation_table("expandable", columns + ["statistics"] * has_statistics)
    for result in results:
        is_equal = result.peak_reserved_bytes == result.recorded_peak_bytes
        cells = [
            _share(result.addresses_matched, result.allocations),
            _share(result.reserved_matched, result.reserved_events),
            Text(format_size(result.peak_reserved_bytes), style="green" if is_equal else "red"),
            Text(format_size(result.recorded_peak_bytes)),
            _share(result.statistics_matched, result.statistics),
        ]
        table.add_row(Text(printable(result.trace)), *cells[: len(table.columns) - 1])
    return table


def _share(matched: int, total: int) -> Text:
    style = "green" if matched == total else "red"
    return Text(f"{matched:,} of {total:,}", style=style)
