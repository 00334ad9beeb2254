"""A diagnosis as rich tables and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.text import Text

from gmlake.diagnosis.words import Pattern, at, colours
from gmlake.printable import printable
from gmlake.tables import Tables, new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.table import Table

    from gmlake.diagnosis.advice import Advice
    from gmlake.diagnosis.detect import Diagnosis
    from gmlake.diagnosis.findings import Group

    _Row: TypeAlias = tuple[int, int, Text]

_MOST_ROWS = 40


def diagnosis_tables(diagnosis: Diagnosis, *, show_all: bool = False) -> Tables:
    """Yield the peaks, a table of what to change, and a line each about offloads and all else.

    show_all: a table of these instead of the lines, however many there are.
    """
    yield Text(_title(diagnosis), style="bold")
    for number, peak in enumerate(diagnosis.peaks, start=1):
        where = printable(f"`{peak.call.label}`{at(peak.call.place)}")
        yield Text(f"  peak {number}: {format_size(peak.bytes)} after {where}")
    told = diagnosis.advice if show_all else diagnosis.advice[:_MOST_ROWS]
    rows = [(one.bytes, one.peak_bytes, _told(one)) for one in told]
    if rows:
        yield _table("what to change, one after another", "peak then", rows)
    rest = others(diagnosis)
    if show_all and rest:
        rest.sort(key=_is_offload)
        also = [(group.bytes, group.saving_bytes, _said(group)) for group in rest]
        yield _table("also found", "saves alone", also)
        return
    if offloads := sum(map(_is_offload, rest)):
        yield Text(f"{offloads:,} more could be copied to the host meanwhile (show_all, --all)")
    if also_found := [group for group in rest if not _is_offload(group)]:
        yield Text(_counted(also_found))
    elif not told and not offloads:
        yield Text("nothing found")


def others(diagnosis: Diagnosis) -> list[Group]:
    """Return the groups of findings that no advice covers.

    A mistake covers all findings of its objects, a change only those of its pattern.
    """
    covered: dict[str, set[int]] = defaultdict(set)
    for advice in diagnosis.advice:
        covered[advice.cause if advice.cause in colours() else ""].update(advice.objects)
    objects = diagnosis.records["object"]
    return [
        group
        for group in diagnosis.groups
        if not covered[""] | covered[group.example.pattern]
        >= set(objects[list(group.numbers)].tolist())
    ]


def fixed_bytes(diagnosis: Diagnosis) -> int | None:
    """Return the peak with all advice followed; None if there is none."""
    return diagnosis.advice[-1].peak_bytes if diagnosis.advice else None


def _is_offload(group: Group) -> bool:
    return group.example.kind is Pattern.TEMPORARY_IDLENESS


def _told(advice: Advice) -> Text:
    is_said = advice.line in advice.change
    return _bold(advice.cause if is_said else f"{advice.cause}, {advice.line}", advice.change)


def _said(group: Group) -> Text:
    times = f"{group.count:,} times, as: " if group.count > 1 else ""
    return _bold(group.example.pattern, times + group.example.change)


def _bold(begin: str, rest: str) -> Text:
    text = Text(f"{printable(begin)}: ", style="bold")
    return text.append(printable(rest), style="not bold")


def _title(diagnosis: Diagnosis) -> str:
    trace = diagnosis.trace
    name = printable(trace.name or "trace")
    peak = diagnosis.peak_bytes
    title = f"{name}: {len(trace.apis):,} calls, {len(trace.objects):,} objects\n"
    title += f"  {format_size(peak)} at the peak"
    fixed = fixed_bytes(diagnosis)
    if fixed is not None:
        title += f"; {format_size(fixed)} with the changes below, {percent_text(fixed, peak)}"
    return title


def percent_text(fixed_bytes: int, peak_bytes: int) -> str:
    """Return the difference in percent, as "-40 %"."""
    share = 100 * (fixed_bytes - peak_bytes) / peak_bytes
    return f"{share:.0f} %" if abs(share) >= 1 else f"{share:.2g} %"


def _table(title: str, figure: str, rows: Iterable[_Row]) -> Table:
    table = new_table(Text(title))
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column(figure, justify="right", no_wrap=True)
    table.add_column("pattern and change", overflow="fold")
    for size_bytes, figure_bytes, told in rows:
        table.add_row(format_size(size_bytes), format_size(figure_bytes), told)
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
        "patterns": [pattern.words for pattern in diagnosis.patterns],
        "peaks": [{"bytes": peak.bytes, **peak.call.to_dict()} for peak in diagnosis.peaks],
        "advice": [advice.to_dict() for advice in diagnosis.advice],
        "groups": [group.to_dict() for group in diagnosis.groups],
        "findings": [finding.to_dict() for finding in diagnosis.findings],
    }
