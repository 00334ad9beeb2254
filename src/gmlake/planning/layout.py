"""The planner's records as numpy types; each is a struct of csrc/include/gmlake_plan.h."""

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
        ("scope_start", "<u4"),
        ("scope_end", "<u4"),
        ("flags", "<u4"),
        ("reserved", "<u4"),
        ("tag", "<u8"),
    ]
)
"""`gml_lifetime`, 64 bytes: live on [start, end)."""

ORDERING: Final = np.dtype([("time", "<u8"), ("before", "<u8"), ("after", "<u8")])
"""`gml_ordering`: what `after` does from `time` on follows what `before` did up to then."""

SPAN: Final = np.dtype([("offset", "<u8"), ("size_bytes", "<u8")])
"""`gml_span`: a range of addresses."""

STEP_REQUEST: Final = np.dtype(
    [
        ("size_bytes", "<u8"),
        ("stream", "<u8"),
        ("birth", "<u8"),
        ("death", "<u8"),
        ("death_serial", "<u8"),
        ("phase_birth", "<u4"),
        ("phase_death", "<u4"),
        ("scope_birth", "<u4"),
        ("scope_death", "<u4"),
    ]
)
"""`gml_step_request`, 56 bytes: one request of a step, with its free."""

STEP_MARK: Final = np.dtype([("time", "<u8"), ("request", "<u8"), ("kind", "<u4"), ("id", "<u4")])
"""`gml_step_mark`: the program entered a phase (kind 0) or a dynamic scope (kind 1)."""

TAKEN: Final = np.dtype([("stream", "<u8"), ("offset", "<u8"), ("size_bytes", "<u8")])
"""`gml_taken`: memory of a stream's lane that a plan must not use."""

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
"""In place of an offset: left to others."""

STILL_LIVE: Final = 2**64 - 1
"""In place of a death: not freed in what was watched."""
