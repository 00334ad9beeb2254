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
