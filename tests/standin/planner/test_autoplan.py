"""AutoPlan under the real PyTorch: training steps on the stand-in GPU, watched, planned, served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.places import ROOT
from tests.standin.running import run_program

if TYPE_CHECKING:
    from pathlib import Path

Steps = list[dict[str, Any]]


def run(
    *arguments: str, variables: dict[str, str] | None = None, devices: int = 1
) -> dict[str, Any]:
    settings = ("--capacity", "80GiB", "--devices", str(devices))
    outcome = run_program("../planner/autoplan", *arguments, settings=settings, variables=variables)
    assert outcome.code == 0, outcome.errors
    return outcome.results


def planned(steps: Steps, kind: str = "train") -> Steps:
    return [step for step in steps if step["is_planned"] and step["kind"] == kind]


def assert_steady(steps: Steps) -> None:
    """Each of them got every address that was planned, without a driver call or more memory."""
    assert steps
    for step in steps:
        assert step["hit_rate"] == 1, step
        assert step["driver_calls"] == 0, step
        assert step["reserved_bytes"] == steps[0]["reserved_bytes"]


def test_evaluation_has_plans_of_its_own() -> None:
    told = run("evaluating")
    steps = told["steps"]
    assert_steady(planned(steps)[-5:])
    evaluations = planned(steps, "evaluation")
    assert len(evaluations) >= 3
    assert evaluations[-1]["hit_rate"] == 1
    assert evaluations[-1]["driver_calls"] == 0
    assert "evaluation: planned: every request" in told["text"]


def test_what_outlives_its_step_alternates_between_two_places() -> None:
    steps = run("kept_output")["steps"]
    assert_steady(planned(steps)[-2:])


def test_a_saved_plan_serves_the_first_step(tmp_path: Path) -> None:
    path = tmp_path / "of-{rank}.gmplan"
    told = run("saved", str(path))
    assert told["empty"].startswith("PlanError: no step is planned yet")
    assert told["path"] == str(tmp_path / "of-0.gmplan")
    steps = run("loaded", str(path))["steps"]
    assert steps[0]["is_planned"]
    assert steps[0]["hit_rate"] > 0.9
    assert_steady(steps[2:])


@pytest.mark.long
def test_a_plan_of_another_rank_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "plan.gmplan"
    run("saved", str(path))
    told = run("loaded", str(path), variables={"RANK": "1", "WORLD_SIZE": "2"})
    assert not told["steps"][0]["is_planned"]
    assert told["steps"][-1]["is_planned"]
    assert any("made for rank 0 of 1, this is rank 1 of 2" in text for text in told["warnings"])


def test_steps_that_never_repeat_are_served_as_ever() -> None:
    steps = run("experts")["steps"]
    assert not planned(steps)
    assert steps[-1]["why"] == "watched: its requests are new"


def test_steps_that_fail_and_steps_in_steps() -> None:
    told = run("turns")
    assert_steady(planned(told["steps"]))
    assert told["after_exception"] == 9
    assert told["nested"].startswith("RuntimeError: a step of kind 'train' is open already")
    assert told["entered_twice"] == "RuntimeError: a step of kind 'train' is open already"
    assert told["reports_of_it"] == 1  # the one that was open goes on
    assert told["bad_kind"].startswith("TypeError: a kind of step has a name")
    assert told["last"]["hit_rate"] == 1
    assert told["text"].startswith("step 9 (train, device 0) planned: every request ")


@pytest.mark.long
def test_a_compiled_model_is_planned() -> None:
    assert_steady(planned(run("compiled")["steps"])[1:])


def example(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.standin", "--capacity", "80GiB"]
    command += [str(ROOT / "examples" / "plan_training.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.long
def test_the_example_is_planned_and_then_planned_at_once(tmp_path: Path) -> None:
    options = ("--size", "small", "--batch", "8", "--plan", str(tmp_path / "gpt.gmplan"))
    first = example(*options, "--steps", "41")
    trained = planned(first["steps"])
    assert_steady(trained[-5:])
    evaluated = planned(first["steps"], "evaluation")
    assert evaluated[-1]["hit_rate"] == 1
    assert evaluated[-1]["driver_calls"] == 0
    assert first["peak_bytes"]["allocated"] > 0.98 * first["peak_bytes"]["reserved"]
    second = example(*options, "--steps", "4")
    assert second["steps"][0]["is_planned"]
    assert second["steps"][0]["hit_rate"] > 0.9


@pytest.mark.long
def test_one_process_for_each_rank(tmp_path: Path) -> None:
    program = str(ROOT / "tests" / "standin" / "planner" / "autoplan.py")
    command = [sys.executable, "-m", "tests.standin", "--devices", "2", "--capacity", "80GiB"]
    command += ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += [program, "saved", str(tmp_path / "{rank}-of-{world}.gmplan")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["0-of-2.gmplan", "1-of-2.gmplan"]
