"""Tensors in memory of gmlake that other processes open: with gmlake, and with PyTorch alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import run_program

SETTINGS = ("--backed", "--capacity", "16GiB")


def run(name: str, settings: tuple[str, ...] = SETTINGS) -> dict[str, Any]:
    outcome = run_program("processes", name, settings=settings)
    assert outcome.code == 0, outcome.errors
    return outcome.results


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return run("share")


def last(mebibytes: int) -> list[int]:
    count = (mebibytes << 20) // 4
    return [count - 2, count - 1]


def test_a_process_with_gmlake_opens_every_tensor(seen: dict[str, Any]) -> None:
    assert seen["stitch"] == 1
    assert seen["with"]["told"] == [last(64), last(101), [998, 999], last(64)]
    assert seen["with_back"] == [77] * 4


@pytest.mark.long
def test_queues_carry_tensors() -> None:
    seen = run("queue")
    assert seen == {"last": [True] * 4, "first": [77] * 4, "exit": 0, "allocated": 0}


def test_what_cannot_be_opened_is_said_in_one_line() -> None:
    seen = run("ended")
    assert "cannot be opened: it has ended, or runs in another network namespace" in seen["gone"]
    assert "cannot be opened: what it shared is gone" in seen["freed"]
    assert "cannot be opened: what it shared is gone" in seen["another"]
    assert "no text by which a tensor is shared" in seen["short"]
    assert "no text by which a tensor is shared" in seen["long"]


def test_no_process_has_to_look_into_another() -> None:
    seen = run("contained")
    assert seen == {"last": [True] * 3, "first": [77] * 3, "exit": 0}


@pytest.mark.long
def test_files_are_open_while_they_travel() -> None:
    """Else 30 tensors of 20 chunks would need 600 files, where 256 may be open."""
    seen = run("many", SETTINGS[1:])
    assert seen["bytes"] == [40 << 20] * 30
    assert seen["receiver"] < 60
    assert seen["before"] <= seen["sender"] <= 140
    assert seen["left"][:2] == [0, 0]
    assert seen["left"][2] <= seen["before"] + 2  # the socket, and what a queue opens


def test_only_the_same_user_is_answered_and_a_child_answers_nobody() -> None:
    seen = run("courier")
    assert seen["made"] == 1
    assert seen["in_child"] == 0
    assert seen["own"] == 8
    assert not seen.get("stranger")
