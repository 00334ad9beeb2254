"""Graphs and pools have memory of the lake, stitched inside of each pool."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

SETTINGS = ("--capacity", "8GiB")
LARGEST = 800  # MiB: what the largest of sixteen graphs needs for its temporaries


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_program("pools", "gmlake", settings=SETTINGS)


@pytest.fixture(scope="module")
def pytorchs() -> dict[str, list[int]]:
    """What the same graphs reserve under PyTorch's two allocators."""
    seen: dict[str, list[int]] = {}
    for allocator in ("", "expandable_segments:True"):
        run = run_program("pools", "", allocator=allocator, settings=SETTINGS)
        for way, found in run.results["serve"].items():
            seen.setdefault(way, []).append(found[0])
    return seen


@pytest.mark.parametrize("way", ["own", "ascending", "descending"])
def test_graphs_reserve_no_more_than_under_pytorchs_best(
    outcome: Outcome, pytorchs: dict[str, list[int]], way: str
) -> None:
    held, after = outcome.results["serve"][way]
    assert LARGEST <= held <= 1.02 * min(pytorchs[way])
    assert after == 0
