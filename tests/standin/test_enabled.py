"""gmlake under PyTorch: sessions, training, the end of memory, streams, graphs, forks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.running import run_program, without_adapters

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
SMALL = ("--capacity", "2GiB", "--devices", "2")


@cache
def run(name: str, *arguments: str, allocator: str = "", **variables: str) -> dict[str, Any]:
    """Run one function of the program `enabled`; the rest of its warnings must be ours."""
    outcome = run_program(
        "enabled", name, *arguments, allocator=allocator, settings=SMALL, variables=variables
    )
    assert outcome.code == 0, outcome.errors
    assert outcome.results.pop("is_ours")
    return outcome.results


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    return run("sessions")


def test_a_session_begins_without_starting_cuda(sessions: dict[str, Any]) -> None:
    assert sessions["before"] == [False, False]
    assert sessions["starts_nothing"]
    assert sessions["empty"] == ["native", "stitch", [], {}]
    assert "no lake" in sessions["no_lake"]
    assert sessions["text"] == ("<gmlake.Session: policy stitch; devices served: 0>")
    assert sessions["trimmed"] == [0, 0]
    assert sessions["lake"] == 8 * MIB


def test_what_it_lacks_is_said_once(sessions: dict[str, Any], tmp_path: Path) -> None:
    assert sessions["warnings"] == []
    results = run("unserved", CXX="no-such-compiler", **without_adapters(tmp_path))
    assert results["modes"] == ["off", "off", False]
    assert results["region"].startswith("RuntimeError: region 'weights': gmlake does not serve")
    assert "install g++" in results["region"]
    assert "CXX=no-such-compiler is not there" in results["why"]
    (warning,) = results["warnings"]
    assert "PyTorch's own allocator does: CXX=no-such-compiler" in warning


def test_the_session_entered_last_decides_who_serves(sessions: dict[str, Any]) -> None:
    assert sessions["inside"] == "stitch"
    assert sessions["enabled"]
    assert sessions["nested"] == ["caching", "caching", "native"]
    assert sessions["nested_twice"] == "stitch"
    assert sessions["inside_again"] == "stitch"
    assert sessions["outside"] == ["caching", False, "<gmlake.Session: policy stitch, not open>"]
    assert sessions["after_exception"] == ["caching", False]
    assert sessions["orders"] == ["caching", "caching", "stitch", "stitch", "caching"]
    assert sessions["threads"] == ["stitch", "caching", "caching"]


def test_a_session_is_entered_again_after_its_end_only(sessions: dict[str, Any]) -> None:
    assert sessions["entered_twice"].startswith("RuntimeError: this session is open already")
    assert sessions["reused"] == "stitch"


def test_settings_hold_until_the_process_ends(sessions: dict[str, Any]) -> None:
    assert sessions["other_knobs"].startswith("ValueError: ")
    assert "growth is not set, not 64MiB" in sessions["other_knobs"]
    assert "policy is stitch, not expandable" in sessions["other_policy"]
    assert sessions["misuses"] == 0


def test_enable_lasts_until_disable(sessions: dict[str, Any]) -> None:
    first, is_same, is_same_again, other_policy, last, enabled = sessions["lasting"]
    assert (first, is_same, is_same_again) == ("stitch", True, True)
    assert "policy is stitch, not caching" in other_policy
    assert (last, enabled) == ("caching", False)


def test_settings_change_until_something_was_served() -> None:
    results = run("unused")
    assert results["replaced"] == ["", "expandable", "native"]
    assert results["inside"] == ["stitch", 1 << 30]
    assert results["too_late"].startswith("ValueError: ")


def test_a_session_decorates_a_function() -> None:
    assert run("unused")["decorated"] == ["stitch", "caching", "caching"]


def test_a_model_trains() -> None:
    results = run("training")
    assert results["calls"] == {}
    assert results["grown"] == 0
    live, reserved = results["peak"]
    assert live <= reserved
    assert results["left"] == [0, 0]
    assert results["misuses"] == 0


def test_a_program_goes_on_where_memory_ends() -> None:
    results = run("out_of_memory")
    assert results["text"].startswith("CUDA out of memory. Tried to allocate 4.00 GiB.")
    assert results["count"] == 1000
    *before, reserved_before, host_before = results["before"]
    *after, reserved_after, host_after = results["after"]
    assert after == before
    assert reserved_after <= reserved_before  # a refusal gives idle memory back first
    assert host_after - host_before < 4096  # KiB
    assert results["sizes"] == [2048, 1024]
    assert results["ooms"] == 1002
    assert results["misuses"] == 0


def test_a_refusal_tells_what_is_held() -> None:
    text = run("out_of_memory")["text"]
    for word in ("total capacity of 2.00 GiB", "policy stitch", "in use", "idle"):
        assert word in text
    # What is left idle after all whole chunks went back depends on the version of PyTorch.
    assert "(fragmentation " in text or "serve only requests of up to 1 MiB" in text


def test_threads_may_begin_and_end_sessions_while_others_allocate() -> None:
    results = run("crowd")
    assert results["failures"] == []
    assert not results["enabled"]
    assert results["left"] == [0, 0]
    assert results["held"] == 0
    assert results["misuses"] == 0


def test_memory_lent_to_a_stream_comes_back_when_it_is_done() -> None:
    lent = run("streams_and_graphs")["lent"]
    assert lent == {"allocated": 0, "active": 8 * MIB, "is_kept": True, "is_back": True}


def test_a_graph_has_memory_of_its_own() -> None:
    results = run("streams_and_graphs")
    graph = results["graph"]
    assert graph["events_in_capture"] == 0
    assert graph["is_apart"]
    assert graph["replayed"] == {}
    assert graph["is_there"]
    assert graph["released"] > 0
    assert results["misuses"] == 0


def test_a_share_of_the_device_is_all_that_is_served() -> None:
    results = run("limits", allocator="per_process_memory_fraction:0.5")
    assert results["from_variable"] == 0.5
    assert results["above_variable"] == "OutOfMemoryError"
    assert (results["set"], results["other_device"]) == (0.25, 0.5)
    assert (results["below"], results["above"]) == ("", "OutOfMemoryError")
    assert (results["without"], results["on_other"]) == ("", "")


def test_a_forked_child_is_served_unless_its_parent_used_cuda() -> None:
    results = run("forks")
    assert results["codes"] == [0, 0, 0]
    assert results["parent"] == [True, 0]


def test_another_backend_serves_outside_of_sessions() -> None:
    seen = run("backend", allocator="backend:cudaMallocAsync")
    assert seen["inside"] == seen["outside"] == 8 * MIB
    assert (seen["backend"], seen["warnings"]) == ("cudaMallocAsync", [])


def test_variables_choose_what_arguments_leave_out() -> None:
    results = run("training", GMLAKE_POLICY="caching", GMLAKE_CAPACITY="1GiB")
    assert results["policy"] == "caching"
    assert results["calls"] == {}
    assert results["left"] == [0, 0]
    assert results["misuses"] == 0


def test_the_first_session_that_uses_a_device_settles_the_policy() -> None:
    results = run("fixed")
    assert results["server"] == "caching"
    assert results["later"] == ["caching", "caching"]
    assert results["same"] == "caching"
    assert "policy is caching, not stitch" in results["other"]
    assert not results["enabled"]
