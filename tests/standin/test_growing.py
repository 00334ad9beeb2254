"""Elastic tensors below the real PyTorch, with real bytes."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "contents": ("starts_empty", "kept", "contents", "address", "memory", "length", "text"),
    "types": ("half", "device", "ones", "eighth"),
    "lifetime": ("held", "gone", "closed"),
    "ahead": ("memory", "no_call", "little"),
    "shared": ("no_more", "apart"),
    "streams": ("contents", "behind"),
    "in_a_graph": ("refused", "kept"),
    "too_little": ("counted", "gives_back", "same"),
    "in_a_region": ("moved", "asleep", "kept", "grows"),
}
ERRORS = {
    "rows": "ValueError: 11 rows requested; it may have 0 to 10",
    "host": "ValueError: an elastic tensor lies on a GPU, not on 'cpu'",
    "empty": "ValueError: an elastic tensor needs at least one row of one byte, not shape (10, 0)",
    "closed": "ValueError: this elastic tensor was closed",
    "closed_tensor": "ValueError: this elastic tensor was closed",
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run them all in one program."""
    settings = ("--devices", "2", "--backed", "--capacity", "1GiB")
    return run_program("growing", settings=settings)


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line(outcome: Outcome, name: str) -> None:
    assert outcome.results["errors"][name] == ERRORS[name]


def test_the_end_of_memory_is_pytorchs(outcome: Outcome) -> None:
    text = outcome.results["too_little"]["refused"]
    assert text.startswith("OutOfMemoryError: an elastic tensor on cuda:0 cannot grow by 3.81 GiB")


def test_nothing_is_left(outcome: Outcome) -> None:
    assert outcome.results["left"] == 0


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
