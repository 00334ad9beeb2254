"""Graphs and pools have memory of the lake, stitched inside of each pool."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

SETTINGS = ("--capacity", "8GiB")
LARGEST = 800  # MiB: what the largest of sixteen graphs needs for its temporaries
RESULTS = 136  # of all of them


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_program("pools", "gmlake", settings=SETTINGS)


@pytest.fixture(scope="module")
def pytorchs() -> dict[str, list[int]]:
    """What the same graphs reserve under PyTorch's two allocators."""
    seen: dict[str, list[int]] = {}
    for allocator in ("", "expandable_segments:True"):
        run = run_program("pools", "", allocator=allocator, settings=SETTINGS)
        for way, found in run.results["serve"].items():
            seen.setdefault(way, []).append(found[0])
    return seen


@pytest.mark.parametrize("way", ["own", "ascending", "descending"])
def test_graphs_reserve_no_more_than_under_pytorchs_best(
    outcome: Outcome, pytorchs: dict[str, list[int]], way: str
) -> None:
    held, after = outcome.results["serve"][way]
    assert LARGEST <= held <= 1.02 * min(pytorchs[way])
    assert after == 0


def test_one_pool_holds_the_largest_graph_and_all_results(outcome: Outcome) -> None:
    held, _ = outcome.results["serve"]["ascending"]
    assert held <= LARGEST + RESULTS


@pytest.mark.parametrize("how", ["raises", "invalid"])
def test_a_failed_capture_leaves_nothing_behind(outcome: Outcome, how: str) -> None:
    assert outcome.results["failures"][how] == ["", 0]


def test_a_pool_and_the_rest_give_each_other_what_they_hold_idle(outcome: Outcome) -> None:
    assert outcome.results["retry"] == [6144, 6144, 0, 0]


def test_the_pool_that_was_entered_last_serves_its_thread(outcome: Outcome) -> None:
    assert outcome.results["nested"] == [True, True, True]


def test_a_pool_belongs_to_whom_it_was_first_seen_by(outcome: Outcome) -> None:
    assert outcome.results["switch_off"] == [False, False, True, True]


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
