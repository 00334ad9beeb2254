"""gmlake below PyTorch's own allocator, from the middle of a program on."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.standin.running import run_program

MIB = 1 << 20
SMALL = ("--capacity", "1536MiB", "--devices", "2")


@cache
def run(name: str, *settings: str) -> dict[str, Any]:
    """Run one function of the program `enabled_pool`."""
    outcome = run_program("enabled_pool", name, settings=(*SMALL, *settings))
    assert outcome.code == 0, outcome.errors
    assert outcome.results["warnings"] == []
    assert outcome.results["misuses"] == 0
    return outcome.results


def test_a_model_trains_backward_included_and_the_memory_comes_back() -> None:
    results = run("training")
    assert results["mode"] == "pool"
    assert "CUDA is in use already" in results["text"]
    requested, reserved = results["reserved"]
    assert requested == reserved
    assert results["gradients"]
    assert results["of_backward"]
    assert results["calls"] == {}
    assert results["left"] == [0, 0]
    assert (results["held"], results["enabled"], results["outside"]) == (0, False, False)


def test_a_tensor_outlives_its_region() -> None:
    results = run("survivors", "--backed")
    assert results["is_whole"]
    assert results["held"] == results["reserved"] == 60 * MIB
    assert results["back"] == [0, 0]


def test_regions_leave_nothing_behind() -> None:
    results = run("survivors")
    assert results["after_many"] == [0, 0]
    assert results["handed_on"] == ""


def test_regions_nest_and_end() -> None:
    results = run("regions")
    assert results["inner"] == ["pool", True]
    assert results["outer_goes_on"]
    assert "open already" in results["twice"]
    assert "mode full is impossible" in results["full"]
    assert "policy is stitch, not expandable" in results["other"]
    assert results["not_in_use"] == [[], False]
    assert results["after_exception"] == [False, False]
    assert results["no_device"] == "RuntimeError: there is no device 7; PyTorch sees 2"
    assert results["lasting"] == [True, True, False, False]


def test_other_threads_are_served() -> None:
    assert run("regions")["thread"] == [True]


def test_emptying_the_cache_gives_back_what_no_tensor_holds() -> None:
    results = run("regions")
    assert results["emptied"] == [True, True]
    assert results["after_emptying"]
    assert results["trimmed"]


def test_steps_of_different_sizes_fit_one_after_the_other() -> None:
    results = run("scarcity")
    assert results["refusals"] == ""
    assert 1 < results["pools"] < 8, "pools are replaced where memory is scarce, and only there"


def test_devices_are_served_that_are_in_use_or_named() -> None:
    results = run("devices")
    assert results["first"] == [0]
    assert not results["other_has_lake"]
    assert (results["both"], results["ours"]) == ([0, 1], True)
    assert (results["named"], results["named_ours"]) == ([1], True)
    assert not results["unnamed_ours"]
    assert (results["current"], results["of_other"]) == (1, True)


def test_a_graph_is_captured_inside_but_no_region_in_a_capture() -> None:
    results = run("graphs")
    assert "while a graph is captured" in results["region"]
    assert "while a graph is captured" in results["within"]
    assert results["is_apart"]
    assert results["is_there"]
    assert not results["enabled"]
    assert results["ours"]
