"""gmlake.plan(), `gmlake plan`, and `gmlake replay --policy plan`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import main
from gmlake.planner import _planner, load_plans
from gmlake.snapshots.whole import of_one_trace
from plans import KIB, MIB, Script, training

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake.trace import Trace


@pytest.fixture
def steps(tmp_path: Path) -> str:
    path = tmp_path / "steps.gmtrace"
    training(6).trace().save(path)
    return str(path)


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["plan", "--json", *words]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_capacity_is_met_or_the_exit_code_says_no(
    steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    least = told(capsys, steps)["results"][0]["peak_bytes"]
    assert told(capsys, steps, "--capacity", str(least))["results"][0]["fits"] is True
    less = str(least - 1)
    assert told(capsys, steps, "--capacity", less, code=1)["results"][0]["fits"] is False
    assert main(["plan", steps, "--capacity", less]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out


def test_a_trace_comes_with_its_step(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = told(capsys, steps)["results"]
    trace = gmlake.load(steps).devices[0].trace
    assert result["trace"] == steps
    assert result["device"] == 0
    assert result["requests"] == trace.allocations
    assert result["lower_bound_bytes"] == trace.peak_live_bytes
    step = result["step"]
    assert step["placed"] == step["requests"]
    assert step["alike"] >= 4
    assert step["lower_bound_bytes"] <= step["peak_bytes"]
    assert step["peak_bytes"] < result["peak_bytes"]
    assert step["ratio"] == step["peak_bytes"] / step["lower_bound_bytes"]
    assert {"first_event", "events", "steps_in_period", "method", "seconds"} <= set(step)


def test_a_plan_is_written_and_serves(steps: str, tmp_path: Path) -> None:
    path = tmp_path / "plans"
    assert main(["plan", steps, "-o", str(path)]) == 0
    (saved,) = load_plans(path).plans
    assert (saved.device, saved.kind) == (0, "train")
    with gmlake.Lake("sim", "stitch", "1GiB") as lake:
        _planner.watch_steps(lake)
        _planner.add_plan(lake, 0, saved.plan)


def test_nothing_to_write_is_said(
    steps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = tmp_path / "flat.gmtrace"
    script = Script()
    script.alloc(4 * KIB)
    script.trace().save(flat)
    out = str(tmp_path / "out")
    assert main(["plan", str(flat), "-o", out]) == 2
    assert "no input repeats a step" in capsys.readouterr().err
    assert main(["plan", steps, "-o", str(tmp_path / "none" / "out")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_the_same_input_gives_the_same_placement(shipped_trace: Trace) -> None:
    first, second = (gmlake.plan(of_one_trace(shipped_trace)).results[0] for _ in range(2))
    assert first.offsets.tobytes() == second.offsets.tobytes()
    assert first.step is not None
    assert second.step is not None
    assert first.step.plan.requests() == second.step.plan.requests()


def test_what_was_before_the_second_planned_step_does_not_count_for_it() -> None:
    script = Script()
    script.free(script.alloc(1000 * MIB))
    steps = training(12, keeps=False)
    script.rows += [(row[0] + 1, *row[1:]) for row in steps.rows]
    script.ids += steps.ids
    (result,) = gmlake.replay(of_one_trace(script.trace()), "plan").results
    assert result.more["plan"]["settled"]["utilization"] < 0.5
    assert result.peak_live_bytes == 1000 * MIB
