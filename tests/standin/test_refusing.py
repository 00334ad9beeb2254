"""Regions and elastic tensors where something is in the way: hooks, forks, settings, arguments."""

from __future__ import annotations

from typing import Any

from tests.standin.running import run_program


def seen(what: str) -> dict[str, Any]:
    outcome = run_program("refusing", what, settings=("--backed", "--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_hooks_hear_the_truth_last_whatever_raises() -> None:
    found = seen("hooks")
    assert found["before"] == found["after"] == "RuntimeError: hook of w"
    assert found["awake"]
    assert found["heard_before"] == ["w sleeps", "w woke"]  # and who comes later nothing
    assert found["heard_after"] == ["w sleeps", "w woke", "last w woke"]
    assert found["driver"].startswith("UnsupportedError: region 'bad' on GPU 0: ")
    assert found["states"] == [False] * 3
    names = ("w", "x", "bad")
    assert found["heard_driver"] == [
        *(f"{name} sleeps" for name in names),
        *(f"{name} woke" for name in names),
        *(f"last {name} woke" for name in names),
    ]


def test_a_forked_child_hangs_at_no_lock_and_knows_no_region() -> None:
    found = seen("fork")
    assert found["status"] == 0
    assert found["regions"] == []
    assert found["sleep"] == "ValueError: no region is called 'w'; there are: none"
    assert "gmlake does not serve this process" in found["enter"]
    assert found["enabled"] is False
    assert found["others"] == [True]


def test_settings_hold_once_a_region_was_used() -> None:
    found = seen("settings")
    assert found["refused"].startswith("ValueError: gmlake is enabled with other settings already")
    assert found["stays"]
    assert found["other"].startswith("ValueError: gmlake serves this process with other settings")


def test_odd_arguments_are_refused_where_they_are_given() -> None:
    found = seen("odd")
    refused = [found[name] for name in ("copy", "deepcopy", "pickle", "memory")]
    assert all(text.startswith("TypeError: ") for text in [*refused, *found["rows"]])
    assert all(text.startswith("TypeError: dtype is a torch.dtype") for text in found["dtypes"])
    assert found["backup"] == "ValueError: backup is \"cpu\" or None, not 'disk'"
    assert found["unharmed"]
    assert found["left"] == []


def test_rows_wait_for_whom_their_memory_served_and_go_behind_their_user() -> None:
    assert seen("streams")["seen"] == [["behind"], ["behind"], [], ["behind"], [], ["before"]]


def test_what_pytorch_holds_idle_goes_back_before_growing_is_refused() -> None:
    assert seen("idle") == {"held": True, "grown": True}


def test_telling_of_regions_costs_what_there_are() -> None:
    found = seen("many")
    assert found["linear"], found["calls"]
