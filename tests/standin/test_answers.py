"""What CUDA's headers leave open: the stand-in answers as an NVIDIA H200 did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.standin.running import Outcome, run_program

FOLDER = Path(__file__).resolve().parent
GPU: dict[str, Any] = json.loads((FOLDER / "answers_h200.json").read_text(encoding="utf-8"))
QUESTIONS = [name for name in GPU if name != "device"]

# The pool of a GPU takes memory in segments of 32 MiB; the stand-in's keeps nothing.
KNOWN_TO_DIFFER = {"pool growth"}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Ask everything, in one program; some questions are misuse, which is their point."""
    return run_program("questions", settings=("--capacity", "140GiB"))


def test_the_recorded_answers_are_those_of_a_gpu(outcome: Outcome) -> None:
    assert GPU["device"] == "NVIDIA H200"
    assert set(outcome.results) == set(GPU)
    assert len(QUESTIONS) > 30
    assert set(QUESTIONS) >= KNOWN_TO_DIFFER


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_that_of_a_gpu(outcome: Outcome, question: str) -> None:
    assert (outcome.results[question] == GPU[question]) is (question not in KNOWN_TO_DIFFER)
