"""Whole training steps under the policy `plan`, from the second planned step on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.planner.periods import find_steps
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace.layout import Kind
from places import ROOT

if TYPE_CHECKING:
    from gmlake.trace import Trace

TRACES = ROOT / "examples" / "traces"
REPEATS = 6


def with_last_step_repeated(trace: Trace, repeats: int) -> Trace:
    """Append the last step, whose blocks all die in it, again and again, each with blocks anew."""
    rows = trace.requests
    begin, end = find_steps(trace).boundaries[-2:].tolist()
    step = rows[begin:end]
    has_block = np.isin(step["kind"], (Kind.ALLOC, Kind.FREE))
    ids = step["id"][has_block]
    allocated, position = np.unique(ids, return_inverse=True)
    assert len(ids) == 2 * len(allocated)
    parts = [rows[:end]]
    for number in range(repeats):
        part = step.copy()
        part["id"][has_block] = trace.id_count + number * len(allocated) + position
        parts.append(part)
    return replace(trace, requests=np.concatenate([*parts, rows[end:]]))


@pytest.mark.parametrize("name", ["1.3b-checkpoint-mixed", "gpt2-xl"])
def test_planned_steps_waste_nothing_and_call_no_driver(name: str) -> None:
    trace = with_last_step_repeated(
        gmlake.load(TRACES / f"{name}.gmtrace").devices[0].trace, REPEATS
    )
    (result,) = gmlake.replay(of_one_trace(trace), "plan", optimize_for="memory").results
    assert result.peak_live_bytes > 5 << 30
    assert result.states["oom"] == 0
    settled = result.more["plan"]["settled"]
    assert settled["steps"] >= REPEATS - 3
    assert settled["utilization"] >= 0.995
    assert settled["hit_rate"] == 1.0
    assert settled["driver_calls"] == 0
