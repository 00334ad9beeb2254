"""Ctrl-C at any line of a with block of gmlake: the next use finds everything as it should be."""

from __future__ import annotations

import pytest
from tests.standin.running import run_program


@pytest.mark.parametrize("what", ["region", "step", "record", "diagnose", "phase"])
def test_an_interrupt_at_any_line_leaves_nothing_behind(what: str) -> None:
    outcome = run_program("interrupts", what, settings=("--capacity", "8GiB"))
    assert outcome.code == 0, outcome.errors
    assert outcome.results["lines"] > 20
    assert outcome.results["late"] < 10  # the first lines of entries and exits
    assert outcome.results["wrong"] == {}
