"""Saved plans as results of planning, so that they print and draw like new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmlake.planner.plan_layout import LIFETIME, NO_OFFSET, PLAN_REQUEST
from gmlake.planner.plan_report import PlanReport, PlanResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gmlake.planner.plan_files import PlanFile, SavedPlan


def report_of_saved(file: PlanFile) -> PlanReport:
    """Return one result per plan of a file, each with its placement."""
    return PlanReport(tuple(_result(saved) for saved in file.plans))


def _result(saved: SavedPlan) -> PlanResult:
    about = saved.plan.describe()
    rows = np.frombuffer(saved.plan.requests(), PLAN_REQUEST)
    rows = rows[rows["offset"] != NO_OFFSET]
    lifetimes = np.zeros(len(rows), LIFETIME)
    for name in ("size_bytes", "start", "end"):
        lifetimes[name] = rows[name]
    peak_bytes, bound_bytes = about["peak_bytes"], about["lower_bound_bytes"]
    return PlanResult(
        trace=f"device {saved.device}, {saved.kind}",
        requests=about["placed"],
        live_bytes=bound_bytes,  # a lane for each stream: nothing is ordered
        lower_bound_bytes=bound_bytes,
        peak_bytes=peak_bytes,
        method=about["method"],
        seconds=about["time_ns"] / 1e9,
        is_proven=peak_bytes == bound_bytes,
        device=saved.device,
        lifetimes=lifetimes,
        offsets=rows["offset"] + _lane_starts(rows)[rows["lane"]],
    )


def _lane_starts(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Return the offset of each lane when they are stacked."""
    heights = np.zeros(int(rows["lane"].max(initial=0)) + 1, np.uint64)
    np.maximum.at(heights, rows["lane"], rows["offset"] + rows["size_bytes"])
    starts: NDArray[np.uint64] = np.cumsum(heights) - heights
    return starts
