"""A diagnosis as rich tables and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gmlake.diagnosing.words import Pattern, at
from gmlake.printable import printable
from gmlake.tables import new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from gmlake.diagnosing.detect import Diagnosis
    from gmlake.diagnosing.findings import Group

_MOST_ROWS = 40


def diagnosis_tables(diagnosis: Diagnosis, *, show_all: bool = False) -> Iterator[RenderableType]:
    """Yield the peaks, a table of changes that lower them, and a line about all else.

    show_all: a table of all else instead of the line, however much there is.
    """
    yield Text(_title(diagnosis), style="bold")
    for number, peak in enumerate(diagnosis.peaks, start=1):
        where = printable(f"`{peak.call.label}`{at(peak.call.place)}")
        yield Text(f"  peak {number}: {format_size(peak.bytes)} after {where}")
    changes = diagnosis.changes if show_all else diagnosis.changes[:_MOST_ROWS]
    if changes:
        rows = [(change.group, change.peak_bytes) for change in changes]
        yield _table("what to change, one after another", "peak then", rows)
    shown = {change.group.example.number for change in changes}
    rest = [group for group in diagnosis.groups if group.example.number not in shown]
    if show_all and rest:
        rows = [(group, group.saving_bytes) for group in rest]
        yield _table("also found", "saves alone", rows)
    elif rest:
        yield Text(_counted(rest))
    elif not changes:
        yield Text("nothing found")


def _title(diagnosis: Diagnosis) -> str:
    trace = diagnosis.trace
    name = printable(trace.name or "trace")
    peak = diagnosis.peak_bytes
    title = f"{name}: {len(trace.apis):,} calls, {len(trace.objects):,} objects\n"
    title += f"  {format_size(peak)} at the peak"
    if diagnosis.changes:
        fixed = diagnosis.changes[-1].peak_bytes
        title += f"; {format_size(fixed)} with the changes below, {percent_text(fixed, peak)}"
    return title


def percent_text(fixed_bytes: int, peak_bytes: int) -> str:
    """Return the difference in percent, as "-40 %"."""
    share = 100 * (fixed_bytes - peak_bytes) / peak_bytes
    return f"{share:.0f} %" if abs(share) >= 1 else f"{share:.2g} %"


def _table(title: str, figure: str, rows: Iterable[tuple[Group, int]]) -> Table:
    table = new_table(Text(title))
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column(figure, justify="right", no_wrap=True)
    table.add_column("pattern and change", overflow="fold")
    for group, size_bytes in rows:
        example = group.example
        told = Text(f"{example.pattern}: ", style="bold")
        told.append(f"{group.count:,} times, as: " if group.count > 1 else "", style="not bold")
        told.append(printable(example.change), style="not bold")
        table.add_row(format_size(group.bytes), format_size(size_bytes), told)
    return table


def _counted(groups: Sequence[Group]) -> str:
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.example.pattern] += group.count
    told = ", ".join(f"{count:,} {pattern}" for pattern, count in counts.most_common())
    return f"also found: {told}"


def diagnosis_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis for JSON. Sizes are in bytes."""
    trace = diagnosis.trace
    return {
        "trace": trace.name,
        "apis": len(trace.apis),
        "objects": len(trace.objects),
        "peak_bytes": diagnosis.peak_bytes,
        "fixed_peak_bytes": diagnosis.fixed_peak_bytes,
        "seconds": diagnosis.seconds,
        "options": {
            **diagnosis.options,
            "patterns": [Pattern(one).words for one in diagnosis.options["patterns"]],
        },
        "peaks": [{"bytes": peak.bytes, **peak.call.to_dict()} for peak in diagnosis.peaks],
        "changes": [change.to_dict() for change in diagnosis.changes],
        "groups": [group.to_dict() for group in diagnosis.groups],
        "findings": [finding.to_dict() for finding in diagnosis.findings],
    }
