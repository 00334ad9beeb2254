"""A capture freezes the device with all its lakes, and one limit holds for them together."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

REFUSED = ("sleep", "wake")
CALLS = (*REFUSED, "empty_cache", "open", "fraction", "resize", "free")


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run them all in one program."""
    return run_program("captures", settings=("--capacity", "8GiB"))


@pytest.mark.parametrize("thread", ["same", "other"])
@pytest.mark.parametrize("call", CALLS)
def test_no_call_breaks_a_capture(outcome: Outcome, call: str, thread: str) -> None:
    said, broken = outcome.results["sweep"][f"{call} {thread}"]
    assert broken == ""
    if call in REFUSED:
        assert said.startswith("UnsupportedError")
        assert "while a graph is being captured" in said
    elif call != "resize":
        assert said == ""


@pytest.mark.parametrize("where", ["no_memory", "no_memory_graphs"])
def test_the_end_of_memory_leaves_a_capture_whole(outcome: Outcome, where: str) -> None:
    inside, broken = outcome.results[where]
    assert inside.startswith("OutOfMemoryError: CUDA out of memory.")
    assert broken == ""


def test_a_failed_capture_in_a_region_leaves_nothing_behind(outcome: Outcome) -> None:
    assert outcome.results["failed"] == {"texts": ["AcceleratorError"] * 3, "held": 64, "slept": ""}


def test_one_limit_holds_for_all_lakes_of_a_device(outcome: Outcome) -> None:
    first, second, outside, instead, woken = outcome.results["limited"]["texts"]
    assert first == ""
    assert "gmlake holds 3.00 GiB outside of this region" in second
    assert "Regions hold 3.00 GiB" in outside
    assert "other processes" not in second + outside
    assert outcome.results["limited"]["held"] == 3 * 1024
    assert instead == ""  # what sleeps is not held
    assert "waking needs 3.00 GiB" in woken
    assert "gmlake holds 3.00 GiB awake" in woken
    assert "all may hold 4.00 GiB" in woken


def test_a_request_that_no_device_could_hold_is_told_in_pytorchs_words(outcome: Outcome) -> None:
    assert "Tried to allocate more than 1EB memory" in outcome.results["refused"]["absurd"]
    assert "Tried to allocate 100.00 GiB. GPU 0 has a total" in outcome.results["refused"]["text"]


def test_a_refusal_is_counted_once(outcome: Outcome) -> None:
    assert outcome.results["refused"]["count"] == 1


def test_sizes_are_rounded_as_pytorchs_setting_says_now(outcome: Outcome) -> None:
    assert outcome.results["rounded"] == [84, 84, 96, 84, 84, 84]


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
