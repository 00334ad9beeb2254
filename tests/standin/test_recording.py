"""Recordings under the real PyTorch on the stand-in GPU: who asked, what for, what gmlake knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.standin.running import run_program

if TYPE_CHECKING:
    from pathlib import Path


def run(*words: str) -> dict[str, Any]:
    outcome = run_program("recording", *words, settings=("--capacity", "80GiB"))
    assert outcome.code == 0, outcome.errors
    assert outcome.results["warnings"] == []
    return outcome.results


def test_a_training_is_recorded_with_its_lines_and_steps() -> None:
    told = run("whole")
    assert any("train_gpt.py" in line for line in told["lines"])
    assert len([label for label in told["labels"] if "step" in label]) == 3
    assert told["events"] > 500
    assert told["calls"] > 0
    assert told["text"] == "<gmlake.Recording: ended>"
    assert told["drawn"]


def test_a_recording_may_begin_in_the_middle() -> None:
    told = run("later")
    assert 100 < told["during"] <= told["events"] + len(told["labels"]) <= 1000
    assert told["is_unchanged"]
    assert not told["is_kept"]
    assert told["sizes"]["parameter"] == told["parameter_bytes"]
    assert told["sizes"]["gradient"] == told["gradient_bytes"]
    assert told["sizes"]["optimizer state"] == told["state_bytes"]


def test_the_programs_own_history_is_used_and_goes_on() -> None:
    told = run("beside_pytorch")
    assert told["events"] == told["kept"] == 50


def test_a_recording_may_leave_out_lines_and_needs_no_gmlake() -> None:
    told = run("without_lines")
    assert told["events"] > 100
    assert told["lines"] == []
    assert told["calls"] == 0


def test_a_view_and_an_order_of_streams_survive_the_file(tmp_path: Path) -> None:
    told = run("stitched", str(tmp_path / "x.pickle"))
    assert told["is_at_view"]
    assert told["address"] in told["blocks"]
    assert told["views"] == told["views_again"] == 1
    assert told["pairs"] == 1
    assert told["pieces"][0]
    assert told["pieces"][1] >= 4
    assert told["bytes"] == told["again"]
    assert told["bytes"][:2] == told["counted"]


def test_a_recording_outlives_the_error_that_ended_it() -> None:
    told = run("out_of_memory")
    assert "out of memory" in told["refusal"]
    assert told["refused"] == [4 << 40]


def test_forked_children_record_nothing() -> None:
    told = run("forked")
    assert told["codes"] == [0] * 8
    assert "ended" in told["text"]
