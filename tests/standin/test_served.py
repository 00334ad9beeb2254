"""The same training under PyTorch's allocators and gmlake's modes: what each takes of a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.running import run_program

import gmlake

if TYPE_CHECKING:
    from pathlib import Path

MODES = ("default", "expandable", "native", "full")
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
    for mode in MODES:
        is_expandable = mode == "expandable"
        snapshot = folder / f"{mode}.pickle"
        outcome = run_program(
            *("served", "default" if is_expandable else mode, str(snapshot)),
            allocator="expandable_segments:True" if is_expandable else "",
            settings=LARGE,
        )
        assert outcome.code == 0, outcome.errors
        done[mode] = Training(outcome.results, snapshot)
    return done


@pytest.mark.parametrize("mode", MODES)
def test_every_snapshot_replays(trainings: dict[str, Training], mode: str) -> None:
    trace = gmlake.load_trace(trainings[mode].snapshot)
    (result,) = gmlake.replay(trace, policies="stitch").results
    peak_bytes = trainings[mode].results["peak_allocated_bytes"]
    assert result.peak_live_bytes == pytest.approx(peak_bytes, rel=0.002)


@pytest.mark.parametrize("mode", ["native", "full"])
def test_it_takes_less_than_pytorch_in_either_way(
    trainings: dict[str, Training], mode: str
) -> None:
    taken = {mode: trainings[mode].results["peak_reserved_bytes"] for mode in MODES}
    assert taken[mode] < taken["expandable"] < taken["default"]
    assert trainings[mode].results["peak_allocated_bytes"] > 0.98 * taken[mode]


@pytest.mark.parametrize("mode", ["native", "full"])
def test_steps_that_repeat_do_not_call_the_driver(mode: str, tmp_path: Path) -> None:
    outcome = run_program(
        *("served", mode, str(tmp_path / "periodic.pickle"), "7", "--periodic"), settings=LARGE
    )
    assert outcome.code == 0, outcome.errors
    first, _, _, *later = outcome.results["calls"]
    assert first
    assert later == [{}] * 4
