"""Elastic tensors that take what is left of a device, and give way before a request is refused."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "fills": (
        "leaves",
        "takes",
        "same_address",
        "less",
        "again",
        "leaves_by_default",
        "no_more_than_it_has",
        "as_it_may",
    ),
    "gives_way": (
        "asked_for_enough",
        "asked_for_no_more",
        "once",
        "as_answered",
        "kept",
        "adds_up",
    ),
    "refuses": ("nobody", "same", "slowly", "refused", "asked", "has_all"),
    "fails": ("refused", "has_all", "negative", "interrupted", "not_again"),
    "elsewhere": ("thread", "other", "pool", "far"),
    "ended": ("silent", "in_a_capture", "gone"),
    "serves": ("served", "fullest", "gave"),
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run them all in one program."""
    settings = ("--devices", "2", "--backed", "--capacity", "1GiB")
    return run_program("filling", settings=settings)


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


def test_what_fails_is_told(outcome: Outcome) -> None:
    assert "ValueError: no idea" in outcome.errors


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
