"""Graphs that take turns: one memory for their temporaries, and what keeps them apart."""

from __future__ import annotations

import re

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


def test_only_graphs_of_one_name_share(outcome: Outcome) -> None:
    same, other, none, after = outcome.results["names"]
    assert other == none
    assert same <= other - 4 * 48
    assert after == 0


def test_graphed_callables_take_turns_and_give_back(outcome: Outcome) -> None:
    took, after = outcome.results["callables"]
    assert 0 < took <= 100
    assert after == 0


def test_a_pool_that_serves_other_work_takes_no_turns(outcome: Outcome) -> None:
    held, after = outcome.results["eager_pool"]
    assert held >= 2 * 50
    assert after == 0


def test_a_turn_ends_with_its_block(outcome: Outcome) -> None:
    assert outcome.results["interrupted"] == [1, 0, 1, 0]


def test_refused_captures_say_why_and_leave_nothing(outcome: Outcome) -> None:
    (beside, memory), (left, more, after) = outcome.results["refusals"]
    assert "captured one after the other" in beside
    assert memory.startswith("CUDA out of memory. The outputs of a graph that takes turns")
    assert (left, more, after) == (0, 0, 0)


def test_a_check_spoils_what_is_temporary_before_each_replay(checked: Outcome) -> None:
    assert checked.results["temporary"] == [0xFF]
    assert checked.results["result"] == [7]


def test_a_check_names_both_graphs_that_run_at_once(checked: Outcome) -> None:
    text = checked.results["beside"]
    place = r"\(.*turns\.py:\d+\)"
    assert re.fullmatch(
        rf"graph 2 of 'checked' {place} was about to run while graph 1 of 'checked' {place} still "
        "runs on another stream: they take turns, so one must wait for the other",
        text,
    )


def test_no_rule_was_broken(outcome: Outcome, checked: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
    assert checked.code == 0, checked.errors
