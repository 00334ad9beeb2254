"""Ctrl-C at any line of a with block of gmlake: the next use finds everything as it should be."""

from __future__ import annotations

import pytest
from tests.standin.running import check_interrupts


@pytest.mark.parametrize("what", ["region", "step"])
def test_an_interrupt_at_any_line_leaves_nothing_behind(what: str) -> None:
    check_interrupts("interrupts", what)
