"""A plan report as a rich table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from rich.text import Text

from gmlake.printable import printable
from gmlake.tables import new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from gmlake.planner.plan_report import PlanReport, PlanResult, StepResult

_LEAST_FORMATTED = 10 << 20


def plan_tables(report: PlanReport) -> Iterator[RenderableType]:
    """Yield one table; a line for each input whose streams cost memory, or that does not fit."""
    table = new_table(Text("planned: each input as a whole, and the step that it repeats"))
    table.add_column("input", overflow="fold")
    for name in ("requests", "lower\nbound", "peak", "peak /\nbound", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for result in report.results:
        _add_result(table, result)
    yield table
    for result in report.results:
        if result.lower_bound_bytes > result.live_bytes:
            yield Text(f"{printable(result.trace)}: {_cost_of_no_order(result)}")
        if result.fits is False:
            capacity = format_size(result.capacity_bytes)
            proven = ", and no placement does" if result.is_proven else ""
            line = f"{printable(result.trace)}: does not fit into {capacity}{proven}"
            yield Text(line, style="red")
        if not result.valid:
            yield Text(f"{printable(result.trace)}: the placement is not valid", style="red")


def _size(size_bytes: int) -> str:
    return format_size(size_bytes) if size_bytes >= _LEAST_FORMATTED else f"{size_bytes:,}"


def _cost_of_no_order(result: PlanResult) -> str:
    """Return what streams need on top of what is live, as they are not ordered."""
    moments = (
        "no moment orders"
        if not result.ordered_moments
        else (
            "1 moment orders"
            if result.ordered_moments == 1
            else f"{result.ordered_moments:,} moments order"
        )
    )
    cost = format_size(result.lower_bound_bytes - result.live_bytes)
    return (
        f"{moments} its {result.streams} streams, which share no memory in between: {cost} of the "
        f"bound are theirs, {format_size(result.live_bytes)} are live at once"
    )


def _add_result(table: Table, result: PlanResult) -> None:
    name = PurePath(result.trace).name or result.trace
    device = f", device {result.device}" if result.device else ""
    table.add_row(
        Text(printable(name + device)),
        f"{result.requests:,}",
        _size(result.lower_bound_bytes),
        _size(result.peak_bytes),
        f"{result.ratio:.5f}",
        f"{1e3 * result.seconds:,.1f}",
        result.method,
        style="bold green" if result.peak_bytes == result.lower_bound_bytes else "",
    )
    if result.step is not None:
        _add_step(table, result.step)


def _add_step(table: Table, step: StepResult) -> None:
    times = "two steps" if step.steps_in_period > 1 else "a step"
    table.add_row(
        Text(f"  {times}, repeated {step.alike} times" if step.alike > 1 else f"  {times}"),
        f"{step.requests:,}",
        _size(step.lower_bound_bytes),
        _size(step.peak_bytes),
        f"{step.ratio:.5f}",
        f"{1e3 * step.seconds:,.1f}",
        step.method,
    )
