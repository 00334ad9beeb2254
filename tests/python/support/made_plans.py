"""A step to plan, as records, and the plan of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmlake.planner import _planner
from gmlake.planner.plan_layout import STEP_REQUEST

if TYPE_CHECKING:
    from gmlake.trace.layout import Records


def step_requests(rows: list[tuple[int, int, int, int]]) -> Records:
    """Rows of size, birth, death, serial of the death."""
    result = np.zeros(len(rows), STEP_REQUEST)
    names = ("size_bytes", "birth", "death", "death_serial")
    for column, values in zip(names, zip(*rows, strict=True), strict=True):
        result[column] = values
    return result


STEP = [(4096, 0, 3, 1), (1024, 1, 2, 1), (2048, 4, 5, 1)]


def made_plan() -> _planner.Plan:
    return _planner.Plan.build(_planner.Profile(step_requests(STEP), 6))
