"""gmlake.plan(), `gmlake plan`, and `gmlake replay --policy plan`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import main
from gmlake.planner import _planner, load_instance, load_plans
from places import RECORDINGS, SHIPPED
from plans import KIB, MIB, Script, training

if TYPE_CHECKING:
    from pathlib import Path

CSV = "id,lower,upper,size\n0,0,10,1000\n1,5,15,1000\n2,10,20,2000\n"
LARGE = sorted((RECORDINGS / "planner-instances" / "large").glob("*"))


@pytest.fixture
def instance(tmp_path: Path) -> str:
    path = tmp_path / "small.csv"
    path.write_text(CSV, encoding="utf-8")
    return str(path)


@pytest.fixture
def steps(tmp_path: Path) -> str:
    path = tmp_path / "steps.gmtrace"
    training(6).trace().save(path)
    return str(path)


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["plan", "--json", *words]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_an_instance_is_placed_as_it_is(instance: str, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = told(capsys, instance)["results"]
    assert result["trace"] == instance
    assert result["requests"] == 3
    assert result["lower_bound_bytes"] == result["peak_bytes"] == 3000
    assert result["ratio"] == 1.0
    assert result["valid"] is True
    assert result["alignment"] == 1
    assert result["seconds"] >= 0
    assert result["method"] == "first-fit-size"  # the first at the bound
    assert not {"step", "fits", "device"} & set(result)


def test_a_capacity_is_met_or_the_exit_code_says_no(
    instance: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, instance, "--capacity", "3000")["results"][0]["fits"] is True
    assert told(capsys, instance, "--capacity", "2999", code=1)["results"][0]["fits"] is False
    assert main(["plan", instance, "--capacity", "2999"]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out


def test_an_alignment_holds(instance: str, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = told(capsys, instance, "--alignment", "256")["results"]
    assert result["peak_bytes"] == 3072


def test_a_trace_comes_with_its_step(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = told(capsys, steps)["results"]
    trace = gmlake.load_trace(steps)
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


def test_several_inputs_make_one_report(
    instance: str, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = told(capsys, instance, steps)["results"]
    assert [result["trace"] for result in results] == [instance, steps]
    assert main(["plan", instance, steps]) == 0
    table = capsys.readouterr().out
    assert "small.csv" in table
    assert "repeated" in table


def test_a_plan_is_written_and_serves(steps: str, tmp_path: Path) -> None:
    path = tmp_path / "plans"
    assert main(["plan", steps, "-o", str(path)]) == 0
    (saved,) = load_plans(path).plans
    assert (saved.device, saved.kind) == (0, "train")
    with gmlake.Lake("sim", "stitch", "1GiB") as lake:
        _planner.watch_steps(lake)
        _planner.add_plan(lake, 0, saved.plan)


def test_a_placement_of_an_instance_is_written(instance: str, tmp_path: Path) -> None:
    path = tmp_path / "placed.csv"
    assert main(["plan", instance, "-o", str(path)]) == 0
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows[0] == ["id", "lower", "upper", "size", "offset"]
    assert len(rows) == 4
    ends = [int(row[4]) + int(row[3]) for row in rows[1:]]
    assert max(ends) == 3000


def test_nothing_to_write_is_said(
    instance: str, steps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = tmp_path / "flat.gmtrace"
    script = Script()
    script.alloc(4 * KIB)
    script.trace().save(flat)
    out = str(tmp_path / "out")
    assert main(["plan", str(flat), "-o", out]) == 2
    assert "no input repeats a step" in capsys.readouterr().err
    assert main(["plan", instance, steps, "-o", out]) == 2
    assert "one instance" in capsys.readouterr().err
    assert main(["plan", steps, "-o", str(tmp_path / "none" / "out")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_bad_file_does_not_stop_the_others(
    instance: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("id,lower,upper,size\n0,1,1,5\n", encoding="utf-8")
    results = told(capsys, str(bad), instance, code=2)["results"]
    assert [result["trace"] for result in results] == [instance]
    assert main(["plan", str(bad)]) == 2
    assert capsys.readouterr().err == (
        f"gmlake: {bad}: line 2 (id '0'): upper is not above lower\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        {"budget_ms": 0},
        {"alignment": 3},
        {"alignment": -4},
        {"capacity": 0},
    ],
)
def test_wrong_arguments_are_value_errors(instance: str, words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        gmlake.plan(instance, **words)


def test_a_report_is_data_too(instance: str) -> None:
    report = gmlake.plan(load_instance(instance))
    (result,) = report.results
    assert result.trace == "small.csv"
    assert result.offsets is not None
    assert len(result.offsets) == 3
    assert report.fits
    assert "small.csv" in str(report)
    assert len((report + report).results) == 2


def test_the_same_input_gives_the_same_placement(shipped_trace: gmlake.Trace) -> None:
    first, second = (gmlake.plan(shipped_trace).results[0] for _ in range(2))
    assert first.offsets is not None
    assert second.offsets is not None
    assert first.offsets.tobytes() == second.offsets.tobytes()
    assert first.step is not None
    assert second.step is not None
    assert first.step.plan.requests() == second.step.plan.requests()


def test_recorded_traces_are_placed_at_their_bound(recorded_trace: Path) -> None:
    (result,) = gmlake.plan(recorded_trace).results
    assert result.valid
    assert result.peak_bytes == result.lower_bound_bytes


@pytest.mark.recordings
@pytest.mark.slow
@pytest.mark.parametrize("path", LARGE or [None], ids=lambda path: path.name if path else "none")
def test_large_instances_are_placed_close_to_their_bound(path: Path) -> None:
    (result,) = gmlake.plan(path).results
    assert result.valid
    assert result.ratio <= (1.001 if "gpt-autograd" in path.name else 1.003)


# ---- replay


def test_a_replay_without_marks_is_planned() -> None:
    trace = training(12, keeps=False).trace()
    report = gmlake.replay(trace, "stitch,plan")
    stitch, planned = report.results
    assert not stitch.more
    assert "plan" not in stitch.to_dict()
    assert planned.allocations == stitch.allocations
    assert planned.peak_live_bytes == stitch.peak_live_bytes
    (planning,) = planned.more.values()
    assert planning["planned_steps"] >= 1
    assert planning["plans"] >= 1
    assert planning["hit_rate"] == 1.0
    assert json.loads(json.dumps(report.to_dict()))["results"][1]["plan"] == planning


def test_from_the_second_planned_step_on_nothing_is_asked_of_the_driver() -> None:
    (result,) = gmlake.replay(training(12, keeps=False).trace(), "plan").results
    settled = result.more["plan"]["settled"]
    assert settled["steps"] >= 4
    assert settled["hit_rate"] == 1.0
    assert settled["driver_calls"] == 0
    assert 0.5 < settled["utilization"] <= 1.0
    assert result.peak_reserved_bytes >= result.peak_live_bytes > 40 * MIB


def test_what_was_before_the_second_planned_step_does_not_count_for_it() -> None:
    script = Script()
    script.free(script.alloc(1000 * MIB))
    steps = training(12, keeps=False)
    script.rows += [(row[0] + 1, *row[1:]) for row in steps.rows]
    script.ids += steps.ids
    (result,) = gmlake.replay(script.trace(), "plan").results
    assert result.more["plan"]["settled"]["utilization"] < 0.5
    assert result.peak_live_bytes == 1000 * MIB


def test_progress_counts_recorded_events_only(steps: str) -> None:
    trace = gmlake.load_trace(steps)
    counted: list[int] = []
    gmlake.replay(trace, "plan", progress=counted.append)
    assert sum(counted) == len(trace.requests)


def test_the_command_line_shows_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--policy", "plan", "--json", str(SHIPPED[0])]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["policy"] == "plan"
    assert {"requests", "served", "left", "settled"} <= set(result["plan"])
