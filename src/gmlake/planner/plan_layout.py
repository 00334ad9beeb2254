"""The planner's records as numpy types; each is a struct of csrc/planner/include/gmlake_plan.h."""

from __future__ import annotations

from typing import Final

import numpy as np

LIFETIME: Final = np.dtype(
    [
        ("size_bytes", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("stream", "<u8"),
        ("phase_start", "<u4"),
        ("phase_end", "<u4"),
        ("tag", "<u8"),
    ]
)
"""`gml_lifetime`, 48 bytes: live on [start, end)."""

ORDERING: Final = np.dtype([("time", "<u8"), ("before", "<u8"), ("after", "<u8")])
"""`gml_ordering`: work of `after` from `time` on follows the work of `before` until then."""

STEP_REQUEST: Final = np.dtype(
    [
        ("size_bytes", "<u8"),
        ("stream", "<u8"),
        ("birth", "<u8"),
        ("death", "<u8"),
        ("death_serial", "<u8"),
    ]
)
"""`gml_step_request`, 40 bytes: one request of a step, with its free."""

PLAN_REQUEST: Final = np.dtype(
    [
        ("size_bytes", "<u8"),
        ("offset", "<u8"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("lane", "<u4"),
        ("step", "<u4"),
    ]
)
"""`gml_plan_request`, 40 bytes: one request of a plan, in request order over its steps."""

NO_OFFSET: Final = 2**64 - 1
"""In place of an offset: not placed by the plan."""

STILL_LIVE: Final = 2**64 - 1
"""In place of a death: not freed while watched."""
