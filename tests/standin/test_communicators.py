"""NCCL's communicators sleep with regions, where PyTorch and NCCL can."""

from __future__ import annotations

import pytest
from tests.standin.running import Outcome, run_program


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Sleep in every way in one program."""
    outcome = run_program("communicators", settings=("--backed", "--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome


@pytest.mark.parametrize("where", ["without_distributed", "gloo"])
def test_without_nccl_nothing_is_told(outcome: Outcome, where: str) -> None:
    assert outcome.results[where] == []
