"""NCCL's communicators sleep with regions, where PyTorch and NCCL can."""

from __future__ import annotations

import pytest
import torch
from tests.standin.running import Outcome, run_program

GIB = 1 << 30


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Sleep in every way in one program."""
    outcome = run_program("communicators", settings=("--backed", "--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome


@pytest.mark.parametrize("where", ["without_distributed", "gloo"])
def test_without_nccl_nothing_is_told(outcome: Outcome, where: str) -> None:
    assert outcome.results[where] == []


def test_communicators_stay_awake_unless_they_are_meant(outcome: Outcome) -> None:
    assert outcome.results["plain"] == [["weights: before"], ["weights: after"]]


def test_they_are_suspended_after_the_hooks_and_resumed_before_them(outcome: Outcome) -> None:
    asleep, awake = outcome.results["both"]
    assert asleep == ["weights: before", "tp: suspend", "dp: suspend"]
    assert awake == ["tp: resume", "dp: resume", "weights: after"]


def test_the_report_tells_what_each_holds(outcome: Outcome) -> None:
    asleep, awake = outcome.results["reports"]
    assert asleep == [[name, True, GIB, 3 * GIB, ""] for name in ("tp", "dp")]
    assert awake == [[name, False, 4 * GIB, 0, ""] for name in ("tp", "dp")]
    assert "1.00 GiB of NCCL, group tp: 3.00 GiB more is suspended" in outcome.results["text"]


def test_what_is_suspended_is_not_suspended_again(outcome: Outcome) -> None:
    assert outcome.results["suspended_before"] == ["weights: before", "dp: suspend"]


def test_what_cannot_be_suspended_is_left_alone_and_named(outcome: Outcome) -> None:
    asleep, awake = outcome.results["left"]
    old = f"PyTorch {torch.__version__} cannot suspend NCCL; 2.12 and later can"
    unable = "memory_stats: NCCL 2.29.7 or later is required"
    left = [["old", False, 0, 0, old], ["unable", False, 0, 0, unable]]
    assert asleep == [*left, ["tp", True, GIB, 3 * GIB, ""]]
    assert awake == [*left, ["tp", False, 4 * GIB, 0, ""]]


def test_a_failure_resumes_those_before_it_and_everything_stays_awake(outcome: Outcome) -> None:
    assert outcome.results["refused"] == [
        *("weights: before", "tp: suspend", "dp: suspend", "tp: resume", "weights: after"),
        "raised NCCL error: suspend of dp",
    ]
    assert outcome.results["awake_after"] == [True, True]


def test_a_region_that_cannot_sleep_resumes_them(outcome: Outcome) -> None:
    *heard, raised = outcome.results["region_refused"]
    assert heard == ["weights: before", "tp: suspend", "tp: resume", "weights: after"]
    assert raised.startswith("raised ")
    assert outcome.results["resumed_after"]
