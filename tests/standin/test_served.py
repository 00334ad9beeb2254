"""The same training under PyTorch's allocators and gmlake: what each takes of a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.running import run_program

import gmlake

if TYPE_CHECKING:
    from pathlib import Path

WAYS = ("default", "expandable", "gmlake")
LARGE = ("--capacity", "80GiB")


@dataclass(frozen=True)
class Training:
    """What a training on sequences of several lengths printed, and its snapshot."""

    results: dict[str, Any]
    snapshot: Path


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    """Train once in each way."""
    folder = tmp_path_factory.mktemp("served")
    done = {}
    for way in WAYS:
        is_expandable = way == "expandable"
        snapshot = folder / f"{way}.pickle"
        outcome = run_program(
            *("served", "default" if is_expandable else way, str(snapshot)),
            allocator="expandable_segments:True" if is_expandable else "",
            settings=LARGE,
        )
        assert outcome.code == 0, outcome.errors
        done[way] = Training(outcome.results, snapshot)
    return done


@pytest.mark.parametrize("way", WAYS)
def test_every_snapshot_replays(trainings: dict[str, Training], way: str) -> None:
    trace = gmlake.load_trace(trainings[way].snapshot)
    (result,) = gmlake.replay(trace, policies="stitch").results
    peak_bytes = trainings[way].results["peak_allocated_bytes"]
    assert result.peak_live_bytes == pytest.approx(peak_bytes, rel=0.002)


def test_it_takes_less_than_pytorch(trainings: dict[str, Training]) -> None:
    taken = {way: trainings[way].results["peak_reserved_bytes"] for way in WAYS}
    assert taken["gmlake"] < taken["expandable"] < taken["default"]
    assert trainings["gmlake"].results["peak_allocated_bytes"] > 0.98 * taken["gmlake"]


def test_steps_that_repeat_do_not_call_the_driver(tmp_path: Path) -> None:
    outcome = run_program(
        *("served", "gmlake", str(tmp_path / "periodic.pickle"), "7", "--periodic"), settings=LARGE
    )
    assert outcome.code == 0, outcome.errors
    first, _, _, *later = outcome.results["calls"]
    assert first
    assert later == [{}] * 4
