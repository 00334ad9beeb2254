"""Recordings of graphs and of a MemPool under the real PyTorch, on the stand-in GPU.

Given the same requests, the policies have to do in pools what PyTorch did, and what gmlake does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.standin.running import run_program

import gmlake

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATIONS = {"caching": "", "expandable": "expandable_segments:True"}
SETTINGS = ("--capacity", "8GiB")
POOLED = 34
"""The allocations of the program that lie in pools."""


@pytest.mark.parametrize("policy", CONFIGURATIONS)
def test_every_address_in_pools_is_pytorchs(policy: str, tmp_path: Path) -> None:
    path = str(tmp_path / "pooled.pickle")
    allocator = CONFIGURATIONS[policy]
    outcome = run_program("pooled", path, "pytorch", allocator=allocator, settings=SETTINGS)
    assert outcome.code == 0, outcome.errors
    trace = gmlake.load_trace(path)
    (result,) = gmlake.validate(trace).results
    assert result.policy == policy
    assert result.is_complete, result.differences
    assert result.pooled_allocations == POOLED
    (replayed,) = gmlake.replay(trace, policy).results
    assert replayed.peak_reserved_bytes == outcome.results["reserved"]


def test_a_replay_says_what_running_gmlake_takes(tmp_path: Path) -> None:
    recorded, own = (str(tmp_path / name) for name in ("pytorch.pickle", "gmlake.pickle"))
    outcomes = [
        run_program("pooled", path, allocator, settings=SETTINGS)
        for path, allocator in ((recorded, "pytorch"), (own, "gmlake"))
    ]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    (result,) = gmlake.replay(gmlake.load_trace(recorded), "stitch").results
    assert result.peak_reserved_bytes == pytest.approx(outcomes[1].results["reserved"], rel=0.02)
