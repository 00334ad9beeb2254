"""Whole training steps under the policy `plan`, from the second planned step on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.snapshots.whole import of_one_trace
from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.trace import Trace

TRACES = ROOT / "examples" / "traces"
REPEATS = 6


@pytest.fixture
def with_last_step_repeated(monkeypatch: pytest.MonkeyPatch) -> Callable[[Trace, int], Trace]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    repeat: Callable[[Trace, int], Trace] = import_module(
        "workloads.repeated"
    ).with_last_step_repeated
    return repeat


@pytest.mark.parametrize("name", ["1.3b-checkpoint-mixed", "gpt2-xl"])
def test_planned_steps_waste_nothing_and_call_no_driver(
    name: str, with_last_step_repeated: Callable[[Trace, int], Trace]
) -> None:
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
