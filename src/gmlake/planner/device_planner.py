"""The steps of one device, reported to its lake, which decides what to plan."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmlake.planner import _planner
from gmlake.units import format_size

if TYPE_CHECKING:
    from gmlake.lake import Lake


@dataclass(frozen=True)
class StepReport:
    """The outcome of one step on one device. Sizes are in bytes.

    kind: as given to AutoPlan.step(). index: of the step, over all kinds, from 0.
    requests: for memory. served: those at the address that a plan has for them. left: those that
    the plan leaves to the policy: small ones.
    driver_calls: made during the step. reserved_bytes: all memory reserved at its end.
    fingerprint: of the requests; 0: not known.
    why: how the step was served, in words.
    """

    device: int
    kind: str
    index: int
    requests: int
    served: int
    left: int
    driver_calls: int
    reserved_bytes: int
    fingerprint: int
    why: str

    @property
    def is_planned(self) -> bool:
        """Whether a plan served the step, from the first request on."""
        return self.served > 0

    @property
    def hit_rate(self) -> float:
        """The share of the plannable requests that got their planned address; 0 to 1."""
        placed = self.requests - self.left
        return self.served / placed if placed else float(self.is_planned)

    def __str__(self) -> str:
        """Summarize the step in one line."""
        return (
            f"step {self.index} ({self.kind}, device {self.device}) {self.why}: {self.served} of "
            f"{self.requests} requests by a plan, {self.driver_calls} driver calls, "
            f"{format_size(self.reserved_bytes)} reserved"
        )


class DevicePlanner:
    """Steps and plans of one lake."""

    def __init__(self, lake: Lake, device: int) -> None:
        """Begin to watch. Raises UnsupportedError if the lake's policy has no steps."""
        _planner.watch_steps(lake)
        self.lake = lake
        self.device = device
        self.reports: dict[str, StepReport] = {}  # by kind, the last one
        self._numbers: dict[str, int] = {}  # by kind, as the lake knows it
        self._first: dict[str, _planner.Profile] = {}  # by kind, of its first step in this process
        self._loaded: dict[str, _planner.Plan] = {}  # by kind, from a file
        self._loaded_first: dict[str, _planner.Plan] = {}  # the same, for the first step
        self._first_numbers: dict[str, int] = {}

    def add(self, name: str, number: int, plan: _planner.Plan) -> None:
        """Serve steps of a kind by a plan from a file."""
        _planner.add_plan(self.lake, number, plan)
        self._loaded[name] = plan

    def add_first(self, name: str, number: int, plan: _planner.Plan) -> None:
        """Serve the first step of a kind, which has its own number, by a plan from a file."""
        _planner.add_plan(self.lake, number, plan)
        self._loaded_first[name], self._first_numbers[name] = plan, number

    def begin(self, name: str, number: int) -> None:
        is_first = name not in self._numbers
        _planner.begin_step(
            self.lake, self._first_numbers.get(name, number) if is_first else number
        )

    def abandon(self) -> None:
        """End the step, if one is open, and discard what was watched."""
        with suppress(ValueError):  # there is none
            _planner.end_step(self.lake)

    def end(self, name: str, number: int, index: int) -> StepReport:
        told = _planner.end_step(self.lake)
        names = ("requests", "served", "left", "driver_calls", "reserved_bytes", "fingerprint")
        report = StepReport(
            device=self.device,
            kind=name,
            index=index,
            why=told["why"],
            **{name: told[name] for name in names},  # type: ignore[literal-required]
        )
        if name not in self._numbers and report.requests:
            self._numbers[name] = number
            if not report.is_planned:
                self._first[name] = _planner.profile(self.lake, told["kind"])
        self.reports[name] = report
        return report

    def plans(self) -> dict[str, _planner.Plan]:
        """Return a plan for each kind whose last step was planned."""
        made = dict(self._loaded)
        for name, number in self._numbers.items():
            if self.reports[name].is_planned:
                profile = self._profile(number)
                if profile is not None:
                    made[name] = _planner.Plan.build(profile)
        return made

    def _profile(self, number: int) -> _planner.Profile | None:
        """Return the last watched step of a kind; None if a plan served all of them."""
        try:
            return _planner.profile(self.lake, number)
        except ValueError:
            return None

    def first_plans(self) -> dict[str, _planner.Plan]:
        """Return by kind a plan for a process's first step, which allocates what then stays."""
        return self._loaded_first | {
            name: _planner.Plan.build(profile) for name, profile in self._first.items()
        }

    def close(self) -> None:
        """Stop serving by plans."""
        for number in (*self._numbers.values(), *self._first_numbers.values()):
            _planner.drop_plans(self.lake, number)
