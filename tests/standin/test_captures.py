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


def test_a_failed_capture_in_a_region_leaves_nothing_behind(outcome: Outcome) -> None:
    assert outcome.results["failed"] == {"texts": ["AcceleratorError"] * 3, "held": 64, "slept": ""}


def test_sizes_are_rounded_as_pytorchs_setting_says_now(outcome: Outcome) -> None:
    assert outcome.results["rounded"] == [84, 84, 96, 84, 84, 84]
