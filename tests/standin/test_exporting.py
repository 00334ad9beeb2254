"""Memory that transports take whole, below the real PyTorch, with real bytes."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = {
    "whole": ("stitched", "inside", "outside", "kept", "elastic"),
    "nesting": ("names", "slept", "decorated"),
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run them all in one program."""
    settings = ("--devices", "2", "--backed", "--capacity", "1GiB")
    return run_program("exporting", settings=settings)


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in TRUTHS for name in TRUTHS[part]]
)
def test_it_holds(outcome: Outcome, part: str, name: str) -> None:
    assert outcome.results[part][name] is True


@pytest.mark.parametrize("name", ["read", "written"])
def test_a_process_without_gmlake_opens_it(outcome: Outcome, name: str) -> None:
    assert outcome.results["processes"][name] is True


def test_errors_are_one_line(outcome: Outcome) -> None:
    assert "RuntimeError: exportable: gmlake does not serve" in outcome.results["early"]
    assert outcome.results["host"] == (
        "ValueError: only memory of a GPU is exportable, not that of cpu"
    )


def test_nothing_is_left(outcome: Outcome) -> None:
    assert outcome.results["left"] == 0


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
