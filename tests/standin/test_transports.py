"""Stitched tensors that collectives are given, found and said with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.standin.running import Outcome, run_program

MIB = 1 << 20
LINES = (Path(__file__).parent / "programs" / "transports.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Run the program."""
    return run_program("transports", settings=("--backed", "--capacity", "1GiB"))


def line_of(text: str) -> str:
    number = LINES[: LINES.index(text)].count("\n") + 1
    return f"transports.py:{number}"


def test_each_line_is_told_once(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
    assert outcome.results["stitched"] is True
    found = outcome.results["found"]
    assert [(operator, size) for operator, _, _, size in found] == [
        ("c10d.allreduce_", 64 * MIB),
        ("c10d.broadcast_", 64 * MIB),
        ("c10d.allreduce_", 64 * MIB),
    ]
    sent = [line.partition(" in ")[0].rpartition("/")[2] for _, line, _, _ in found]
    assert sent == [
        line_of("dist.all_reduce(before[100:])"),
        line_of("dist.broadcast(before, 0)"),
        line_of("dist.all_reduce(before)\n        return gradient"),
    ]
    assert len(outcome.results["said"]) == 3


def test_what_lies_in_one_piece_is_not_told(outcome: Outcome) -> None:
    assert outcome.results["none"] == 0


def test_the_line_that_made_it_is_named_where_pytorch_keeps_it(outcome: Outcome) -> None:
    made = {made for _, _, made, _ in outcome.results["found"]}
    assert [one.endswith(line_of("return torch.ones(16") + " in make()") for one in made] == [True]


def test_no_line_is_kept_afterwards(outcome: Outcome) -> None:
    assert outcome.results["history"] is False
