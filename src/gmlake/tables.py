"""Reports as rich tables: for a terminal, for str(), and for a notebook that renders rich."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmlake.printable import printable
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from gmlake.replaying import ReplayReport, ReplayResult

_TEXT_WIDTH = 120
_NS_PER_MS = 1e6


def as_text(report: RenderableType, width: int = _TEXT_WIDTH) -> str:
    """Render a report without colours, as wide as it needs up to `width` characters."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, color_system=None, force_terminal=False, force_jupyter=False
    )
    console.print(report)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


class Printed(ABC):
    """Renders as rich tables, and as plain text for str()."""

    @abstractmethod
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the tables."""

    def __str__(self) -> str:
        return as_text(self)


def replay_tables(report: ReplayReport) -> Iterator[RenderableType]:
    """Yield for each trace the refusals and the policies that serve it, then its table."""
    traces = dict.fromkeys(result.trace for result in report.results)
    for trace in traces:
        results = [result for result in report.results if result.trace == trace]
        refusals = report.refusals.get(trace, ())
        for refusal in refusals:
            yield from map(Text, refusal.sentences())
        left_out = report.refused.get(trace, 0) - len(refusals)
        if left_out > 0:
            yield Text(f"{left_out:,} more that PyTorch refused are not asked again", "dim")
        if report.is_limited:
            yield from _verdicts(results, report.capacity_bytes)
        yield _replay_table(results)
    if report.results:
        yield Text("*: the largest share of what was reserved was in use", style="dim")
        devices = ", ".join(dict.fromkeys(printable(result.device) for result in report.results))
        yield Text(f"driver ms: what these calls cost on a {devices}", style="dim")
    if any(result.states.get("oom") for result in report.results):
        yield Text("(...): of what was left, since requests were refused", style="red")


def _verdicts(results: list[ReplayResult], capacity_bytes: int) -> Iterator[Text]:
    """Say which policies serve the whole trace in this capacity, and the others' first refusal."""
    within = format_size(capacity_bytes)
    served = [
        f"{result.policy} ({format_size(capacity_bytes - result.peak_reserved_bytes)} to spare)"
        for result in results
        if result.first_refused is None
    ]
    if served:
        yield Text(f"yes, it fits into {within} with: {', '.join(served)}", style="green")
    refused: dict[tuple[int, int, str], list[str]] = {}
    for result in results:
        if result.first_refused is not None:
            what = result.first_refused, result.refused_bytes, result.asked_at
            refused.setdefault(what, []).append(result.policy)
    for (event, size_bytes, asked_at), policies in refused.items():
        said = f"no, it does not fit into {within} with: {', '.join(policies)}; "
        said += f"{format_size(size_bytes)} are refused "
        said += f"at event {event:,}" if event >= 0 else "of what was live before the recording"
        said += f", asked for at {printable(asked_at)}" if asked_at else ""
        yield Text(said, style="red")
    if refused and results[0].wanted_bytes > capacity_bytes:
        wanted = format_size(results[0].wanted_bytes)
        yield Text(f"no allocator can do it: {wanted} are live at the peak", style="red")


def new_table(title: Text | None) -> Table:
    """Return a table narrow enough for 80 columns."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )


def _replay_table(results: list[ReplayResult]) -> Table:
    first = results[0]
    title = (
        f"{printable(first.trace)}: {first.events:,} events, "
        f"{format_size(first.wanted_bytes)} live at the peak"
    )
    table = new_table(Text(title))
    table.add_column("policy", no_wrap=True)
    names = (
        "reserved",
        "live /\nreserved",
        "unused",
        "stitched",
        "oom",
        "driver\ncalls",
        "driver\nms",
    )
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    whole = (result.utilization for result in results if result.first_refused is None)
    best = max(whole, default=None)
    for result in results:
        is_best = result.first_refused is None and result.utilization == best
        table.add_row(*_replay_row(result, is_best=is_best), style="bold green" if is_best else "")
    return table


def _replay_row(result: ReplayResult, *, is_best: bool) -> list[str]:
    unused = max(result.peak_reserved_bytes - result.peak_live_bytes, 0)
    of_memory = (
        format_size(result.peak_reserved_bytes),
        format_share(result.utilization),
        format_size(unused),
    )
    return [
        f"{result.policy} *" if is_best else result.policy,
        *(of_memory if result.first_refused is None else (f"({text})" for text in of_memory)),
        f"{result.states.get('stitch', 0):,}",
        f"{result.states.get('oom', 0):,}",
        f"{sum(result.driver_calls.values()):,}",
        f"{result.driver_time_ns / _NS_PER_MS:,.1f}",
    ]
