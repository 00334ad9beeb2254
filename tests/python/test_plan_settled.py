"""Whole training steps under the policy `plan`, from the second planned step on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gmlake
from gmlake import Trace
from gmlake.planning.periods import find_steps
from gmlake.trace.layout import Kind

TRACES = Path(__file__).parents[2] / "examples" / "traces"
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
    trace = with_last_step_repeated(gmlake.load_trace(TRACES / f"{name}.gmtrace"), REPEATS)
    (result,) = gmlake.replay(trace, "plan").results
    assert result.peak_live_bytes > 5 << 30
    assert result.states["oom"] == 0
    assert result.plan is not None
    settled = result.plan["settled"]
    assert settled["steps"] >= REPEATS - 3
    assert settled["utilization"] >= 0.998
    assert settled["hit_rate"] == 1.0
    assert settled["driver_calls"] == 0
