"""The results of planning per trace or instance, printed as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.pictures.drawable import Drawable
from gmlake.pictures.figures import Figure, Report
from gmlake.planner.plan_tables import plan_tables
from gmlake.snapshots.packings import packing_by_size
from gmlake.tables import Printed
from gmlake.trace.layout import Records
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from gmlake.planner import _planner
    from gmlake.planner.instances import Instance


MOST_PLANS: Final = 16
"""That are drawn."""


def ratio(peak_bytes: int, lower_bound_bytes: int) -> float:
    """Return peak / bound; 1.0 if nothing is live."""
    return peak_bytes / lower_bound_bytes if lower_bound_bytes else 1.0


@dataclass(frozen=True)
class StepResult:
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
    requests: int
    placed: int
    steps_in_period: int
    alike: int
    lower_bound_bytes: int
    peak_bytes: int
    ratio: float
    method: str
    seconds: float
    fingerprint: int
    plan: _planner.Plan = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure; the fingerprint as text, since JSON readers round large numbers."""
        figures = {
            name: value for name, value in vars(self).items() if name not in ("plan", "fingerprint")
        }
        return {**figures, "fingerprint": f"{self.fingerprint:016x}"}


@dataclass(frozen=True)
class PlanResult:
    """One trace or instance placed as a whole. Sizes are in bytes.

    trace: the file as it was named, or the trace's name.
    requests: blocks that were placed, including those live before recording.
    live_bytes: the peak of live bytes.
    lower_bound_bytes: no placement can go below it. Above live_bytes where streams are not ordered:
        they share no memory in between.
    peak_bytes: how much memory the placement takes. ratio: that by the bound.
    method: the algorithm that found it. is_proven: no placement takes less.
    seconds: the time to place it. valid: it has passed the independent check.
    alignment: of every offset. capacity_bytes: as asked for, 0 for none.
    device: of a trace; None for an instance.
    streams: that blocks are on. ordered_moments: at which the work of each follows that of all.
    step: the plan of the repeated step; None for an instance, or if nothing repeats.
    offsets: of each block, in the order of `lifetimes`.
    """

    trace: str
    requests: int
    live_bytes: int
    lower_bound_bytes: int
    peak_bytes: int
    ratio: float
    method: str
    seconds: float
    valid: bool
    is_proven: bool
    alignment: int
    capacity_bytes: int = 0
    device: int | None = None
    streams: int = 1
    ordered_moments: int = 0
    step: StepResult | None = None
    lifetimes: Records | None = field(default=None, repr=False, compare=False)
    offsets: Records | None = field(default=None, repr=False, compare=False)
    instance: Instance | None = field(default=None, repr=False, compare=False)

    @property
    def fits(self) -> bool | None:
        """Whether it takes no more than the capacity; None if none was given."""
        return self.peak_bytes <= self.capacity_bytes if self.capacity_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures that apply."""
        figures: dict[str, Any] = {name: getattr(self, name) for name in _FIGURES}
        if self.device is None:
            del figures["device"]
        if self.capacity_bytes:
            figures.update(capacity_bytes=self.capacity_bytes, fits=self.fits)
        if self.step is not None:
            figures["step"] = self.step.to_dict()
        return figures


_FIGURES = (
    "trace",
    "device",
    "requests",
    "streams",
    "ordered_moments",
    "live_bytes",
    "lower_bound_bytes",
    "peak_bytes",
    "ratio",
    "method",
    "seconds",
    "valid",
    "is_proven",
    "alignment",
)


@dataclass(frozen=True)
class PlanReport(Drawable, Printed):
    """The results of one or more inputs, in the order they were made; prints as a table."""

    results: tuple[PlanResult, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether everything is valid, and within the capacity if one was given."""
        return all(result.valid and result.fits is not False for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return {"results": [...]}, as `gmlake plan --json` prints it."""
        return {"results": [result.to_dict() for result in self.results]}

    def __add__(self, other: PlanReport) -> PlanReport:
        return PlanReport(self.results + other.results)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, a row per input and one for its step."""
        yield from plan_tables(self)

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
    """Return the packing of a whole trace or instance, if it was kept."""
    table, offsets = result.lifetimes, result.offsets
    if table is None or offsets is None or not len(table):
        return []
    drawn = packing_by_size(
        result.trace,
        table["start"].astype(np.float64),
        table["end"].astype(np.float64),
        np.asarray(offsets).astype(np.int64),
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
