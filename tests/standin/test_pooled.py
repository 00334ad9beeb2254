"""Recordings of graphs and of a MemPool under the real PyTorch, on the stand-in GPU.

Given the same requests, the policies have to do in pools what PyTorch did, and what gmlake does.
"""

# PyTorch's drawing of snapshots has no types.
# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.standin.running import run_program

import gmlake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.standin.running import Outcome

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


# ---- recorded under gmlake

POOLED_AND_GONE = 3 * 12 + 11
"""The allocations of gone_pools.py that lie in pools."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, list[Path]]:
    """What was reserved, and the recordings with the pools there and gone."""
    folder = tmp_path_factory.mktemp("gone")
    paths = [folder / "whole.pickle", folder / "gone.pickle"]
    outcome = run_program("gone_pools", *map(str, paths), settings=SETTINGS)
    assert outcome.code == 0, outcome.errors
    return outcome, paths


@pytest.fixture(scope="module")
def gone(files: tuple[Outcome, list[Path]]) -> tuple[Outcome, list[gmlake.Trace]]:
    outcome, paths = files
    return outcome, [gmlake.load_trace(path) for path in paths]


def test_a_recording_under_gmlake_knows_the_pools_of_views_that_are_gone(
    gone: tuple[Outcome, list[gmlake.Trace]],
) -> None:
    for trace in gone[1]:
        (result,) = gmlake.validate(trace).results
        assert result.pooled_allocations == POOLED_AND_GONE
        assert len(trace.pools) == 2


def test_a_replay_of_a_recording_under_gmlake_reserves_what_the_run_did(
    gone: tuple[Outcome, list[gmlake.Trace]],
) -> None:
    outcome, traces = gone
    for trace in traces:
        (result,) = gmlake.replay(trace, "stitch").results
        assert result.peak_reserved_bytes == pytest.approx(outcome.results["reserved"], rel=0.02)
