"""Diagnoses of programs under the real PyTorch on the stand-in GPU."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import check_interrupts, run_program


def run(name: str) -> dict[str, Any]:
    outcome = run_program("../diagnosis/operators", name, settings=("--capacity", "80GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_a_step_is_seen_on_every_device_thread_and_stream() -> None:
    told = run("step")
    assert told["devices"] == ["cpu", "cuda:0"]
    assert "threshold_backward" in told["labels"]  # of the thread that autograd has for the GPU
    assert set(told["scopes"]) == {"backward"}
    assert set(told["functions"]) == {"step"}
    assert told["copies"] == [1, 1]
    assert told["streams"] == 2


def test_indices_are_left_alone_while_a_graph_is_captured() -> None:
    told = run("captured")
    assert "index_select" in told["labels"]
    assert told["ranges"] == 0


def test_what_reports_predict_is_what_the_allocator_sees() -> None:
    told = run("savings")
    for name, saved in {"2MM": 0.40, "3MM": 0.57}.items():
        before, after = told[name]
        assert 1 - after / before == pytest.approx(saved, abs=0.03)
    assert told["GPT"]["measured"] > 100 << 20
    assert told["GPT"]["predicted"] == pytest.approx(told["GPT"]["measured"], rel=0.02)


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    return run("programs")


@pytest.mark.long
def test_an_interrupt_at_any_line_leaves_nothing_behind() -> None:
    check_interrupts("../diagnosis/interrupts", "diagnose")
