"""A stand-in whose memory has bytes: what was copied is there, once it was its turn."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program

TRUTHS = (
    *("return", "peer", "inside", "late", "view", "item", "list"),
    *("same_block", "old_bytes", "pending", "done"),
    *("first_replay", "second_replay", "threads"),
)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run them all in one program."""
    return run_program("backed", settings=("--devices", "2", "--backed", "--capacity", "1GiB"))


@pytest.mark.parametrize("name", TRUTHS)
def test_bytes_are_where_they_were_copied(outcome: Outcome, name: str) -> None:
    assert outcome.results[name] is True


def test_a_small_device_refuses_early(outcome: Outcome) -> None:
    text = outcome.results["refusal"]
    assert text.startswith("CUDA out of memory. Tried to allocate 4.00 GiB.")
    assert "a total capacity of 1024.00 MiB" in text or "a total capacity of 1.00 GiB" in text


def test_waiting_within_a_capture_breaks_it(outcome: Outcome) -> None:
    waited, ended = outcome.results["broken_capture"]
    assert "operation not permitted when stream is capturing" in waited
    assert "operation failed due to a previous error during capture" in ended


def test_no_rule_was_broken(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
