"""Tensors in memory of gmlake that other processes open: with gmlake, and with PyTorch alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import run_program

SETTINGS = ("--backed", "--capacity", "16GiB")


def run(name: str) -> dict[str, Any]:
    outcome = run_program("processes", name, settings=SETTINGS)
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


def test_a_process_without_it_opens_what_lies_in_chunks_of_one_size(seen: dict[str, Any]) -> None:
    assert set(seen["are_own"]) == {True, False}
    cases = zip(seen["are_own"], seen["with"]["told"], seen["without"]["told"], strict=True)
    for is_own, expected, told in cases:
        assert "future version of torch" in told if is_own else told == expected
    assert seen["without_back"] == [0 if is_own else 77 for is_own in seen["are_own"]]


def test_what_is_opened_counts_as_the_others(seen: dict[str, Any]) -> None:
    for who in ("with", "without"):
        assert (seen[who]["allocated"], seen[who]["reserved"]) == ([0], 0)


def test_everything_comes_back_when_all_are_done(seen: dict[str, Any]) -> None:
    assert seen["is_same"]
    refused = zip(seen["are_own"], (64, 101, 1, 0), strict=True)
    assert seen["left"] == sum(size << 20 for is_own, size in refused if is_own)  # PyTorch waits


def test_queues_carry_tensors() -> None:
    seen = run("queue")
    assert seen == {"last": [True] * 4, "first": [77] * 4, "exit": 0, "allocated": 0}


def test_what_cannot_be_opened_is_said_in_one_line() -> None:
    seen = run("ended")
    assert "memory of process 4194304 cannot be opened" in seen["gone"]
    assert "no text by which a tensor is shared" in seen["short"]
    assert "no text by which a tensor is shared" in seen["long"]
