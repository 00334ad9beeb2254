"""Reports as rich tables: for a terminal, for str(), and for a notebook that renders rich."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias

from gmlake.printable import printable
from gmlake.snapshots.pool_names import PrivatePool, in_pools
from gmlake.units import format_share, format_size

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from gmlake.refusals import Refusal
    from gmlake.replaying import ReplayReport, ReplayResult

_TEXT_WIDTH = 120
_NS_PER_MS = 1e6


def as_text(report: RenderableType, width: int = _TEXT_WIDTH) -> str:
    """Render a report without colours, as wide as it needs up to `width` characters."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=width, color_system=None, force_terminal=False, force_jupyter=False
    )
    console.print(report)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


Tables: TypeAlias = "Iterator[RenderableType]"
"""What a report prints, one part after the other."""


class Printed(ABC):
    """Renders as rich tables, and as plain text for str()."""

    @abstractmethod
    def _tables(self) -> Tables:
        """Yield the parts, from above."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._tables()

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        """As a notebook shows it, where it has no picture of its own."""
        return f"<pre>{escape(as_text(self))}</pre>"


def replay_tables(report: ReplayReport) -> Tables:
    """Yield for each trace the refusals and the policies that serve it, then its table."""
    from rich.text import Text

    traces = dict.fromkeys(result.trace for result in report.results)
    for trace in traces:
        results = [result for result in report.results if result.trace == trace]
        refusals = report.refusals.get(trace, ())
        for refusal in refusals:
            why, *figures = refusal.sentences()
            yield Text(why)
            if not report.is_limited and (verdict := refusal.verdict()):
                yield Text(verdict)
            yield from (Text(said, "dim") for said in figures)
        left_out = report.refused.get(trace, 0) - len(refusals)
        if left_out > 0:
            yield Text(f"{left_out:,} more that PyTorch refused are not asked again", "dim")
        if report.is_limited and report.refused.get(trace):
            yield _answer(results, refusals, report.refused[trace], report.capacity_bytes)
        elif report.is_limited:
            yield from _verdicts(results, report.capacity_bytes)
        if report.is_limited:
            yield from _others(results, report.others.get(trace, 0), report.capacity_bytes)
        is_asked = report.is_limited and bool(report.refused.get(trace))
        yield _replay_table(results, WITH_REFUSED if is_asked else "")
        yield from _pools(report.pools.get(trace, ()))
    if report.results:
        yield Text("*: the largest share of what was reserved was in use", style="dim")
        devices = ", ".join(dict.fromkeys(printable(result.device) for result in report.results))
        yield Text(f"driver ms: what these calls cost on a {devices}", style="dim")
    if any(result.states.get("oom") for result in report.results):
        yield Text("(...): of what was left, since requests were refused", style="red")


def _verdicts(results: list[ReplayResult], capacity_bytes: int) -> Iterator[Text]:
    """Say which policies serve the whole trace in this capacity, and the others' first refusal."""
    from rich.text import Text

    within = format_size(capacity_bytes)
    served = _served(results, capacity_bytes)
    if served:
        yield Text(f"yes, it fits into {within} with: {served}", style="green")
    refused = [result for result in results if result.first_refused is not None]
    for first, policies in _by_refusal(refused):
        said = f"no, it does not fit into {within} with: {policies}; {_where(first)}"
        yield Text(said, style="red")
    if refused and results[0].wanted_bytes > capacity_bytes:
        wanted = format_size(results[0].wanted_bytes)
        yield Text(f"no allocator can do it: {wanted} are live at the peak", style="red")


def _answer(
    results: list[ReplayResult], refusals: tuple[Refusal, ...], count: int, capacity_bytes: int
) -> Text:
    """Say in one sentence who serves what PyTorch refused, and whether the whole fits.

    refusals: the first ones; count: of all.
    """
    from rich.text import Text

    within = format_size(capacity_bytes)
    what = f"the {count:,} requests that PyTorch refused"
    if count == 1 and refusals:
        what = f"the {format_size(refusals[0].size_bytes)} that PyTorch refused"
    parts = []
    if served := _served(results, capacity_bytes):
        parts.append(f"in {within}, {what} would have been served, and the whole recording fits, ")
        parts[0] += f"with: {served}"
    refused = [result for result in results if result.first_refused is not None]
    for first, policies in _by_refusal([one for one in refused if one.is_refused_again]):
        again = format_size(first.refused_bytes)
        if parts:
            said = "it is" if count == 1 else f"of these {again} are"
            parts.append(f"{said} refused again with: {policies}")
            continue
        which = f" (of these {again} at event {first.first_refused:,})" if count > 1 else ""
        parts.append(f"in {within}, {what} would be refused again{which}, and the recording does ")
        parts[0] += f"not fit, with: {policies}"
    for first, policies in _by_refusal([one for one in refused if not one.is_refused_again]):
        parts.append("" if parts else f"in {within}, ")
        parts[-1] += f"it does not fit with: {policies}; {_where(first)}"
    if refused and results[0].wanted_bytes > capacity_bytes:
        wanted = format_size(results[0].wanted_bytes)
        parts.append(f"no allocator can do it: {wanted} would be live at the peak")
    return Text("; ".join(parts), style="green" if served else "red")


def _served(results: list[ReplayResult], capacity_bytes: int) -> str:
    """Name the policies that serve everything, with what they have to spare."""
    return ", ".join(
        f"{result.policy} ({format_size(capacity_bytes - result.peak_reserved_bytes)} to spare)"
        for result in results
        if result.first_refused is None
    )


def _by_refusal(refused: list[ReplayResult]) -> Iterator[tuple[ReplayResult, str]]:
    """Yield, for each request that is the first that policies refuse, one of them and all names."""
    found: dict[tuple[object, ...], list[ReplayResult]] = {}
    for result in refused:
        what = result.first_refused, result.refused_bytes, result.asked_at
        found.setdefault(what, []).append(result)
    for same in found.values():
        yield same[0], ", ".join(result.policy for result in same)


def _where(first: ReplayResult) -> str:
    """Say which request is refused."""
    event = -1 if first.first_refused is None else first.first_refused
    said = f"{format_size(first.refused_bytes)} are refused "
    said += f"at event {event:,}" if event >= 0 else "of what was live before the recording"
    return said + (f", asked for at {printable(first.asked_at)}" if first.asked_at else "")


NOT_INCLUDED: Final = (
    "not included: memory of CUDA itself (its context), of libraries beside PyTorch's allocator "
    "such as NCCL, and of other processes"
)
"""What no recording of an allocator has, and the device needs as well."""


def others_in_words(others_bytes: int) -> str:
    """Say how much of the device was not PyTorch's when a recording was made."""
    return f"these had {format_size(others_bytes)} of the device when it was recorded"


def _others(results: list[ReplayResult], others_bytes: int, capacity_bytes: int) -> Iterator[Text]:
    """Say what is not included, and what fits with as much of it as was measured."""
    from rich.text import Text

    yield Text(NOT_INCLUDED, style="dim")
    if others_bytes:
        fits = [
            result.policy
            for result in results
            if result.first_refused is None
            and result.peak_reserved_bytes + others_bytes <= capacity_bytes
        ]
        names = ", ".join(fits) or "none of them"
        yield Text(
            f"{others_in_words(others_bytes)}; with that much of it the recording fits into "
            f"{format_size(capacity_bytes)} with: {names}"
        )


def _pools(pools: tuple[tuple[PrivatePool, int], ...]) -> Iterator[Text]:
    from rich.text import Text

    if pools:
        said = "each private pool is served from a heap of its own; live at the recorded peak"
        yield Text(f"{said}: {in_pools(pools)}", style="dim")


def new_table(title: Text | None, *headings: str) -> Table:
    """Return a table narrow enough for 80 columns; its columns: one of names, others of numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in headings:
        is_first = not table.columns
        table.add_column(heading, justify="left" if is_first else "right", no_wrap=True)
    return table


WITH_REFUSED: Final = ", what PyTorch refused included"


def _replay_table(results: list[ReplayResult], included: str) -> Table:
    from rich.text import Text

    first = results[0]
    title = (
        f"{printable(first.trace)}: {first.events:,} events, "
        f"{format_size(first.wanted_bytes)} live at the peak{included}"
    )
    names = (
        "policy",
        "reserved",
        "live /\nreserved",
        "unused",
        "stitched",
        "oom",
        "driver\ncalls",
        "driver\nms",
    )
    table = new_table(Text(title), *names)
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
