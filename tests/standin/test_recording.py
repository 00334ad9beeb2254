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


def test_pytorchs_own_recording_takes_no_events_away() -> None:
    told = run("beside_pytorch")
    steps = [label for label in told["labels"] if label.startswith("step ")]
    assert steps == ["step 0", "step 1", "step 2"]
    assert told["kept"] == 50


def test_a_recording_outlives_the_error_that_ended_it() -> None:
    told = run("out_of_memory")
    assert "out of memory" in told["refusal"]
    assert told["labels"] == [*STEP, "step 0"]


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
