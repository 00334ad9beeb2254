"""Recordings under the real PyTorch on the stand-in GPU: who asked, in which phase, what for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import finish_program, run_program, start_program

STEP = ["forward", "between", "backward", "between", "optimizer", "between"]


def run(name: str) -> dict[str, Any]:
    outcome = run_program("recording", name, settings=("--capacity", "80GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome.results


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return run("whole")


def test_each_module_is_named_in_both_passes(whole: dict[str, Any]) -> None:
    places = {tuple(place) for place in whole["places"]}
    parts = ["", ".attention.project_in", ".attention.project_out", ".widen", ".narrow"]
    for name in [f"blocks.{index}{part}" for index in range(2) for part in parts]:
        assert (name, "forward") in places
        assert (name, "backward") in places
    assert ("AdamW", "optimizer") in places


def test_phases_and_steps_are_marked(whole: dict[str, Any]) -> None:
    assert whole["labels"] == [label for index in range(3) for label in [*STEP, f"step {index}"]]
    assert "3 steps" in whole["text"]


def test_a_notebook_draws_it(whole: dict[str, Any]) -> None:
    assert whole["drawn"].startswith("<iframe")
    assert "blocks.0.widen" in whole["drawn"]


def test_what_is_known_by_address_is_complete(whole: dict[str, Any]) -> None:
    sizes = whole["sizes"]
    assert sizes["parameter"] == whole["parameter_bytes"]
    assert sizes["gradient"] == 3 * whole["gradient_bytes"]
    assert sizes["optimizer state"] == whole["state_bytes"] == 2 * whole["parameter_bytes"]


def test_the_rest_is_mostly_understood(whole: dict[str, Any]) -> None:
    sizes = whole["sizes"]
    workspace_bytes = 32 << 20  # of cuBLAS, made in the first backward pass and kept
    assert sizes["unknown"] - workspace_bytes < 0.05 * sum(sizes.values())
    assert sizes["activation"] > 0.2 * sum(sizes.values())


def test_a_recording_may_begin_in_the_middle() -> None:
    told = run("later")
    assert told["second"].startswith("a recording is on already")
    assert told["is_same"]
    assert told["is_unchanged"]
    assert told["again"] is None
    assert told["history"] == 0
    assert told["sizes"]["parameter"] > 0
    assert told["sizes"]["optimizer state"] == 2 * told["sizes"]["parameter"]
    assert told["events"] == told["total"] < 1000
    assert any("train_gpt.py" in frame for frame in told["frames"])
    assert told["labels"][:3] == ["measuring", "forward", "measuring"]
    assert "step 0" in told["labels"]


def test_a_recording_that_nobody_holds_goes_on_until_the_next() -> None:
    told = run("let_go")
    assert told["first"] == told["labels"] == [*STEP, "step 0"]
    assert told["again"] is None


def test_a_backward_pass_that_fails_leaves_nothing_behind() -> None:
    told = run("failed_backward")
    assert told["refusal"] == "no gradient of this"
    assert told["labels"] == [*STEP[:3], *STEP, "step 0", *STEP, "step 1"]


def test_pytorchs_own_recording_takes_no_events_away() -> None:
    told = run("beside_pytorch")
    steps = [label for label in told["labels"] if label.startswith("step ")]
    assert steps == ["step 0", "step 1", "step 2"]
    assert told["kept"] == 50


def test_steps_of_an_auto_plan_are_marked_once() -> None:
    told = run("steps")
    steps = [label for label in told["labels"] if label.startswith("step ")]
    assert steps == [f"step {index}" for index in range(7)]
    assert told["labels"][0] == "step 0"
    assert told["labels"][-1] == "step 6"  # of the optimizer alone
    assert told["hit_rate"] == 1


def test_a_recording_outlives_the_error_that_ended_it() -> None:
    told = run("out_of_memory")
    assert "out of memory" in told["refusal"]
    assert told["labels"] == [*STEP, "step 0"]


def test_where_gmlake_serves_nothing_it_says_so() -> None:
    told = run("nothing_enabled")
    assert told["devices"] == {"during": 0, "behind": 0}
    assert told["drawn"] is None
    assert any("it serves nothing yet" in text for text in told["warnings"])


def test_forked_children_record_nothing() -> None:
    told = run("forked")
    assert told["codes"] == [0] * 8
    assert "ended" in told["text"]


@pytest.mark.long
def test_a_program_may_end_right_after_a_backward_pass() -> None:
    """Without waiting for PyTorch's threads, two of five end in an abort."""
    for _ in range(5):
        pair = [start_program("ending", settings=("--capacity", "8GiB")) for _ in range(2)]
        for outcome in [finish_program(process) for process in pair]:
            assert outcome.code == 0, outcome.errors
