"""Graphs that take turns: one memory for their temporaries, and what keeps them apart."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

LARGEST = 800  # MiB: what the largest of sixteen graphs has at once
RESULTS = 136  # of all of them


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_program("turns", settings=("--capacity", "1GiB"))


@pytest.fixture(scope="module")
def checked() -> Outcome:
    return run_program("turns", "checked", settings=("--backed", "--capacity", "1GiB"))


@pytest.mark.parametrize("way", ["own", "ascending", "descending"])
def test_sixteen_graphs_hold_the_largest_and_all_results(outcome: Outcome, way: str) -> None:
    held, shown, after = outcome.results["serve"][way]
    assert LARGEST + RESULTS - 16 <= held <= 1.05 * LARGEST + RESULTS
    assert shown == held
    assert after == 0


def test_a_check_spoils_what_is_temporary_before_each_replay(checked: Outcome) -> None:
    assert checked.results["temporary"] == [0xFF]
    assert checked.results["result"] == [7]
