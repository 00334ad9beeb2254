"""Ctrl-C anywhere in a call about sleep, elastic tensors or regions: all, or nothing, or mended."""

from __future__ import annotations

import pytest
from tests.standin.running import run_program

PLACES = {
    "sleep": 60,
    "wake": 60,
    "refused_sleep": 40,
    "grow": 25,
    "shrink": 20,
    "reserve": 12,
    "fill": 25,
    "make_elastic": 50,
    "region": 20,
    "everywhere": 20,
    "exportable": 15,
}
"""What is broken off, and at how many places at least."""


@pytest.mark.parametrize("what", PLACES)
def test_an_interrupt_at_any_line_or_return_is_mended_by_the_next_use(what: str) -> None:
    outcome = run_program("broken_off", what, settings=("--backed", "--capacity", "8GiB"))
    assert outcome.code == 0, outcome.errors
    assert outcome.results["wrong"] == {}
    assert outcome.results["places"] >= PLACES[what]
    assert outcome.results["returns"] > 0
