"""Jobs of one rank have NCCL: collectives give what the rank has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.standin.running import Outcome, run_program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run one process on a device with bytes."""
    store: Path = tmp_path_factory.mktemp("one") / "store"
    return run_program("one_rank", str(store), settings=("--backed", "--capacity", "1GiB"))


def test_it_ends_well(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors


def test_collectives_give_what_the_rank_has(outcome: Outcome) -> None:
    assert outcome.results["collected"] == [True] * 5


def test_copies_and_shares_are_trained(outcome: Outcome) -> None:
    for live in outcome.results["live"]:  # weights and two states of the optimizer, at least
        assert live >= 3


def test_a_rank_of_two_is_refused_in_words(outcome: Outcome) -> None:
    assert "no NCCL between ranks: use gloo" in outcome.results["refusal"]
