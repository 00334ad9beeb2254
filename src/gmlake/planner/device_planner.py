"""The steps of one device, told to its lake, which decides what is planned."""

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
    """What one step did on one device. Sizes are in bytes.

    kind: as given to AutoPlan.step(). index: of the step, over all kinds, from 0.
    requests: for memory. served: of those, at the place that a plan has for them; left: of those,
    that the plan leaves to the policy: small ones.
    driver_calls: made during the step. reserved_bytes: held in all at its end.
    fingerprint: of the requests; 0: not known.
    why: what became of the step, in words.
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
        """Whether a plan served, from the first request on."""
        return self.served > 0

    @property
    def hit_rate(self) -> float:
        """Which part of the requests that a plan may place got their place; 0 to 1."""
        placed = self.requests - self.left
        return self.served / placed if placed else float(self.is_planned)

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"step {self.index} ({self.kind}, device {self.device}) {self.why}: {self.served} of "
            f"{self.requests} requests by a plan, {self.driver_calls} driver calls, "
            f"{format_size(self.reserved_bytes)} reserved"
        )


class DevicePlanner:
    """Steps and plans of one lake."""

    def __init__(self, lake: Lake, device: int) -> None:
        """Begin to watch. Raises UnsupportedError where the lake's policy has no steps."""
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
        """Let a plan of a file serve steps of a kind."""
        _planner.add_plan(self.lake, number, plan)
        self._loaded[name] = plan

    def add_first(self, name: str, number: int, plan: _planner.Plan) -> None:
        """Let one serve the first step of a kind, which has a number of its own."""
        _planner.add_plan(self.lake, number, plan)
        self._loaded_first[name], self._first_numbers[name] = plan, number

    def begin(self, name: str, number: int) -> None:
        """Begin a step."""
        is_first = name not in self._numbers
        _planner.begin_step(
            self.lake, self._first_numbers.get(name, number) if is_first else number
        )

    def abandon(self) -> None:
        """End the step, where one is open, and learn nothing from it."""
        with suppress(ValueError):  # there is none
            _planner.end_step(self.lake)

    def end(self, name: str, number: int, index: int) -> StepReport:
        """End the step."""
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
        """Return the last step of a kind that was watched; None where a plan served all of them."""
        try:
            return _planner.profile(self.lake, number)
        except ValueError:
            return None

    def first_plans(self) -> dict[str, _planner.Plan]:
        """Return by kind a plan for the first step of a process, which makes what then stays."""
        return self._loaded_first | {
            name: _planner.Plan.build(profile) for name, profile in self._first.items()
        }

    def close(self) -> None:
        """Let no plan serve from here on."""
        for number in (*self._numbers.values(), *self._first_numbers.values()):
            _planner.drop_plans(self.lake, number)
