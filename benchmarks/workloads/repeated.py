"""Traces that go on: the shipped ones hold too few steps alike to show a plan at work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gmlake.planner.periods import find_steps
from gmlake.trace.layout import Kind

if TYPE_CHECKING:
    from gmlake.trace import Trace


def with_last_step_repeated(trace: Trace, repeats: int) -> Trace:
    """Append the last step, whose blocks all die in it, again and again, each with blocks anew."""
    rows = trace.requests
    begin, end = find_steps(trace).boundaries[-2:].tolist()
    step = rows[begin:end]
    has_block = np.isin(step["kind"], (Kind.ALLOC, Kind.FREE))
    ids = step["id"][has_block]
    allocated, position = np.unique(ids, return_inverse=True)
    assert len(ids) == 2 * len(allocated)  # noqa: S101 (what the docstring says of the step)
    parts = [rows[:end]]
    for number in range(repeats):
        part = step.copy()
        part["id"][has_block] = trace.id_count + number * len(allocated) + position
        parts.append(part)
    return replace(trace, requests=np.concatenate([*parts, rows[end:]]))
