"""Native mode begins and ends at each moment of what programs do, and changes nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.programs import moments
from tests.standin.running import finish_program, run_program, start_program

NAMES = [moment.__name__ for moment in moments.MOMENTS]
INTERVALS = [f"{begin} to {end}" for begin, end in moments.INTERVALS]


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


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_program_sees_does_not_change(
    seen: dict[str, Any], name: str, interval: str
) -> None:
    assert seen[name][interval]["result"] == seen[name]["never"]["result"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_behind(seen: dict[str, Any], name: str) -> None:
    for found in seen[name].values():
        assert (found["left"], found["reserved"], found["live"]) == (0, True, 0)


@pytest.mark.parametrize("name", NAMES)
def test_gmlake_serves_while_it_is_wanted(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["never"]["served"] == 0
    assert seen[name]["0 to 4"]["served"] > 0
