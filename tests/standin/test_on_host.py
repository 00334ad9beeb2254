"""Memory of the host, before PyTorch is refused memory of the device."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import run_program


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    outcome = run_program("on_host", settings=("--backed", "--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_only_what_the_device_lacks_comes_from_the_host(seen: dict[str, Any]) -> None:
    assert (seen["before"], seen["during"], seen["most"]) == (0, 40, 40)
    assert seen["part"] == 8
    assert seen["too_much"]


def test_one_line_says_who_asked(seen: dict[str, Any]) -> None:
    ((text, file),) = seen["warnings"]
    assert "40 MiB for this request of 40 MiB lie in memory of the host" in text
    assert file.endswith("on_host.py")


def test_a_step_that_repeats_finds_it_again(seen: dict[str, Any]) -> None:
    assert seen["part_again"]
    assert seen["more_creates"] == 1, "a larger request takes what it lacks, and keeps the rest"
    assert seen["no_new"]


def test_graphs_and_regions_get_none(seen: dict[str, Any]) -> None:
    assert seen["full"]
    assert seen["in_a_graph"]
    assert seen["in_a_region"]


def test_it_goes_where_the_device_has_room(seen: dict[str, Any]) -> None:
    assert (seen["after"], seen["at_last"], seen["serves"]) == (0, 0, 100 << 20)


def test_what_others_left_of_the_device_is_taken_first() -> None:
    outcome = run_program("on_host", "others", settings=("--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    assert 12 <= outcome.results["host_mib"] <= 24  # a part of the device stays free
