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
    "refuses": ("nobody", "same", "slowly", "refused", "asked", "in_vain", "has_all"),
    "fails": (
        "refused",
        "has_all",
        "negative",
        "nothing",
        "truth",
        "interrupted",
        "not_again",
        "not_within",
        "texts",
    ),
    "beside": ("second", "grows", "itself", "refused", "kept"),
    "apart": ("region", "grows", "wakes", "far"),
    "asleep": ("refused", "not_asked", "kept"),
    "elsewhere": ("thread", "other", "pool", "far"),
    "together": ("served", "ended"),
    "locked": ("order", "refused"),
    "ended": ("silent", "in_a_capture", "gone"),
    "serves": ("served", "fullest", "gave", "kept"),
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
