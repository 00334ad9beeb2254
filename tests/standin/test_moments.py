"""Native mode begins and ends at each moment of what programs do, and changes nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import finish_program, run_program, start_program


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    outcome = finish_program(start_program("moments"))
    assert outcome.code == 0, outcome.errors  # a broken rule of CUDA would be 70
    return outcome.results


@pytest.mark.parametrize("name", ["profiler", "replay", "history"])
def test_the_first_time_may_be_within_it(seen: dict[str, Any], name: str) -> None:
    first = run_program("moments", name).results[name]["first"]
    assert first["served"] > 0
    assert (first["left"], first["reserved"], first["live"]) == (0, True, 0)
    assert first["result"] == seen[name]["never"]["result"]
