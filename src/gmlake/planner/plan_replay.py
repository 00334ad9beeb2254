"""A replay under the policy `plan`: which requests were planned, and how well they were served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gmlake.planner import _planner
from gmlake.planner.periods import with_marks
from gmlake.trace.layout import Kind, Records
from gmlake.trace.trace import slices

if TYPE_CHECKING:
    from gmlake import _core
    from gmlake.lake import Lake
    from gmlake.replaying import Progress
    from gmlake.trace import Trace


def replay(
    lake: Lake, run: _core.Replay, trace: Trace, progress: Progress | None
) -> tuple[_core.ReplayTotals, dict[str, Any]]:
    """Replay a trace from mark to mark, or from step to step as found if it has no marks."""
    serving = Serving(lake, run)
    serving.run(with_marks(trace).replay_requests(), progress)
    return serving.totals(), {"plan": serving.report()}


REPLAYS: Final = {"plan": replay}
"""Policies with a replay of their own."""


def in_words(lake: Lake) -> str:
    """Say how many requests plans served, and why not more; "" without AutoPlan or steps."""
    try:
        told = _planner.plan_stats(lake)
    except ValueError:  # steps are not watched
        return ""
    if not told["steps"]:
        return ""
    return (
        f"{told['planned_steps']:,} of {told['steps']:,} steps planned, with "
        f"{told['served']:,} of {told['requests']:,} requests; the last: {told['why']}"
    )


class Serving:
    """Runs requests from mark to mark.

    Peaks are reset when the first planned step has ended, so that the figures from then on are
    those of the steady state.
    """

    def __init__(self, lake: Lake, replay: _core.Replay) -> None:
        self._lake = lake
        self._replay = replay
        self._totals = replay.run(b"")
        self._before: _core.ReplayTotals | None = None  # the totals when peaks were reset
        self._steady: _Steady | None = None

    def run(self, requests: Records, progress: Progress | None) -> None:
        """Replay all requests."""
        marks = np.flatnonzero(requests["kind"] == Kind.MARK) + 1
        begin = 0
        for end in [*marks.tolist(), len(requests)]:
            for part in slices(requests[begin:end]):
                self._totals = self._replay.run(part.view(np.uint8))
                if progress is not None:
                    progress(int(np.count_nonzero(part["kind"] != Kind.MARK)))
            if end < len(requests) or (len(marks) and end == marks[-1]):
                self._at_mark()
            begin = end

    def _at_mark(self) -> None:
        """Update the figures for the step that just ended; the next one has begun."""
        if self._steady is not None:
            self._steady.look()
        elif _planner.plan_stats(self._lake)["planned_steps"]:
            self._before = self._totals
            self._lake.reset_peaks()
            self._steady = _Steady(self._lake)

    def totals(self) -> _core.ReplayTotals:
        """Return the totals of the whole replay."""
        totals = self._totals.copy()
        if self._before is not None:
            for name in ("peak_live_bytes", "peak_reserved_bytes"):
                totals[name] = max(totals[name], self._before[name])
        return totals

    def report(self) -> dict[str, Any]:
        """Return the planned and served requests, over all steps and after the first planned one.

        steps, planned_steps, plans; of the requests in steps: requests, served, left, hit_rate.
        settled: from the second planned step on to the last mark:
        steps, utilization, hit_rate, driver_calls; None if there was no second one.
        """
        stats = _planner.plan_stats(self._lake)
        return {
            "steps": stats["steps"],
            "planned_steps": stats["planned_steps"],
            "plans": stats["plans_made"],
            "requests": stats["requests"],
            "served": stats["served"],
            "left": stats["left"],
            "hit_rate": _rate(stats["served"], stats["requests"] - stats["left"]),
            "settled": self._steady.report if self._steady else None,
        }


class _Steady:
    """The figures from the second planned step on."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._first = _planner.plan_stats(lake)
        self._calls = self._count_calls()
        self.report: dict[str, Any] | None = None

    def _count_calls(self) -> int:
        return sum(self._lake.stats()["driver_calls"].values())

    def look(self) -> None:
        """Update the report after a step has ended."""
        told, stats = _planner.plan_stats(self._lake), self._lake.stats()
        left = told["left"] - self._first["left"]
        requests = told["requests"] - self._first["requests"]
        reserved = stats["peak_reserved_bytes"]
        self.report = {
            "steps": told["planned_steps"] - self._first["planned_steps"],
            "utilization": stats["peak_live_bytes"] / reserved if reserved else 1.0,
            "hit_rate": _rate(told["served"] - self._first["served"], requests - left),
            "driver_calls": self._count_calls() - self._calls,
        }


def _rate(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
