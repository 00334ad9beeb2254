"""The results of planning per trace, printed as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.text import Text

from gmlake.pictures.drawable import Drawable
from gmlake.pictures.figures import Figure, Report
from gmlake.printable import printable
from gmlake.snapshots.packings import packing_by_size
from gmlake.tables import Printed, Tables, new_table
from gmlake.trace.layout import Records
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gmlake.planner import _planner

MOST_PLANS: Final = 16
"""That are drawn."""

_LEAST_FORMATTED: Final = 10 << 20


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """What was placed, and how well."""

    requests: int
    lower_bound_bytes: int
    peak_bytes: int
    method: str
    seconds: float

    @property
    def ratio(self) -> float:
        """Peak / bound; 1.0 if nothing is live."""
        return self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return every figure for JSON."""
        figures = {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
        return {**figures, "ratio": self.ratio}


@dataclass(frozen=True, kw_only=True)
class StepResult(_Placed):
    """The plan of the step that a trace repeats. Sizes are in bytes.

    first_event: the row of trace.requests at which the planned step begins.
    events: allocations and frees in it. requests: of the plan's period. placed: those that have
        an address; the others live too long to be planned, or their end is not known.
    steps_in_period: 2 if a block lives for longer than one step.
    alike: steps of the trace with exactly the same requests.
    lower_bound_bytes, peak_bytes: of the lanes of all streams together.
    seconds: the time to plan it.
    plan: for save_plans(), or add_plan() of `gmlake.planner._planner`.
    """

    first_event: int
    events: int
    placed: int
    steps_in_period: int
    alike: int
    fingerprint: int
    plan: _planner.Plan = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure; the fingerprint as text, since JSON readers round large numbers."""
        return {**super().to_dict(), "fingerprint": f"{self.fingerprint:016x}"}


@dataclass(frozen=True, kw_only=True)
class PlanResult(_Placed):
    """One trace placed as a whole. Sizes are in bytes.

    trace: the file as it was named, or the trace's name. device: of it.
    requests: blocks that were placed, including those live before recording.
    live_bytes: the peak of live bytes.
    lower_bound_bytes: no placement can go below it. Above live_bytes where streams are not ordered:
        they share no memory in between.
    peak_bytes: how much memory the placement takes. method: the algorithm that found it.
    is_proven: no placement takes less.
    seconds: the time to place it.
    capacity_bytes: as asked for, 0 for none.
    streams: that blocks are on. ordered_moments: at which the work of each follows that of all.
    step: the plan of the repeated step; None if nothing repeats.
    offsets: of each block, in the order of `lifetimes`.
    """

    trace: str
    device: int
    live_bytes: int
    is_proven: bool
    capacity_bytes: int = 0
    streams: int = 1
    ordered_moments: int = 0
    step: StepResult | None = None
    lifetimes: Records = field(repr=False, compare=False)
    offsets: Records = field(repr=False, compare=False)

    @property
    def fits(self) -> bool | None:
        """Whether it takes no more than the capacity; None if none was given."""
        return self.peak_bytes <= self.capacity_bytes if self.capacity_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures that apply."""
        figures = super().to_dict()
        step, capacity_bytes = figures.pop("step"), figures.pop("capacity_bytes")
        if capacity_bytes:
            figures.update(capacity_bytes=capacity_bytes, fits=self.fits)
        return figures if step is None else {**figures, "step": step.to_dict()}


@dataclass(frozen=True)
class PlanReport(Drawable, Printed):
    """The results of one or more inputs, in the order they were made; prints as a table."""

    results: tuple[PlanResult, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether everything is within the capacity, if one was given."""
        return all(result.fits is not False for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return {"results": [...]}, as `gmlake plan --json` prints it."""
        return {"results": [result.to_dict() for result in self.results]}

    def __add__(self, other: PlanReport) -> PlanReport:
        return PlanReport(self.results + other.results)

    def _tables(self) -> Tables:
        """Render the table, a row per input and one for its step."""
        yield from _tables(self)

    def report(self) -> Report:
        """Return the placement of each block, for drawing."""
        figures: list[Figure] = []
        facts: list[tuple[str, str]] = []
        for result in self.results[:MOST_PLANS]:
            name = f"{result.trace}: " if len(self.results) > 1 else ""
            facts += [
                (f"{name}height", format_size(result.peak_bytes)),
                (f"{name}lower bound", format_size(result.lower_bound_bytes)),
                (f"{name}height by bound", f"{result.ratio:.3f}"),
                (f"{name}found by", result.method),
            ]
            figures += _packing_of(result)
        if len(self.results) > MOST_PLANS:
            facts.append(("not drawn", f"{len(self.results) - MOST_PLANS:,} more plans"))
        return Report("Plan", tuple(facts), tuple(figures))


def _packing_of(result: PlanResult) -> list[Figure]:
    """Return the packing of a whole trace, if it has a block."""
    table = result.lifetimes
    if not len(table):
        return []
    drawn = packing_by_size(
        result.trace,
        table["start"].astype(np.float64),
        table["end"].astype(np.float64),
        np.asarray(result.offsets).astype(np.int64),
        table["size_bytes"].astype(np.int64),
    )
    return [
        replace(
            drawn,
            unit="requests",
            height_bytes=result.peak_bytes,
            bound_bytes=result.lower_bound_bytes,
        )
    ]


# ---- tables


def _tables(report: PlanReport) -> Tables:
    """Yield one table; a line for each input whose streams cost memory, or that does not fit."""
    table = new_table(Text("planned: each input as a whole, and the step that it repeats"))
    table.add_column("input", overflow="fold")
    for name in ("requests", "lower\nbound", "peak", "peak /\nbound", "ms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for result in report.results:
        is_best = result.peak_bytes == result.lower_bound_bytes
        table.add_row(*_row(_name(result), result), style="bold green" if is_best else "")
        if result.step is not None:
            table.add_row(*_row(_step_name(result.step), result.step))
    yield table
    for result in report.results:
        if result.lower_bound_bytes > result.live_bytes:
            yield Text(f"{printable(result.trace)}: {_cost_of_no_order(result)}")
        if result.fits is False:
            capacity = format_size(result.capacity_bytes)
            proven = ", and no placement does" if result.is_proven else ""
            line = f"{printable(result.trace)}: does not fit into {capacity}{proven}"
            yield Text(line, style="red")


def _row(name: str, placed: _Placed) -> list[RenderableType]:
    return [
        Text(name),
        f"{placed.requests:,}",
        _size(placed.lower_bound_bytes),
        _size(placed.peak_bytes),
        f"{placed.ratio:.5f}",
        f"{1e3 * placed.seconds:,.1f}",
        placed.method,
    ]


def _size(size_bytes: int) -> str:
    return format_size(size_bytes) if size_bytes >= _LEAST_FORMATTED else f"{size_bytes:,}"


def _name(result: PlanResult) -> str:
    name = PurePath(result.trace).name or result.trace
    return printable(name + (f", device {result.device}" if result.device else ""))


def _step_name(step: StepResult) -> str:
    times = "two steps" if step.steps_in_period > 1 else "a step"
    return f"  {times}, repeated {step.alike} times" if step.alike > 1 else f"  {times}"


def _cost_of_no_order(result: PlanResult) -> str:
    """Return what streams need on top of what is live, as they are not ordered."""
    count = result.ordered_moments
    order = f"{count:,} moments order" if count > 1 else f"{count or 'no'} moment orders"
    cost = format_size(result.lower_bound_bytes - result.live_bytes)
    return (
        f"{order} its {result.streams} streams, which share no memory in between: {cost} of the "
        f"bound are theirs, {format_size(result.live_bytes)} are live at once"
    )
