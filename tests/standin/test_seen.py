"""Snapshots of a training under gmlake: they agree with PyTorch's counters, and load anywhere."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run
from tests.standin.places import ROOT
from tests.standin.running import run_program
from torch.cuda import _memory_viz

import gmlake
from gmlake.pictures.figures import Timeline
from gmlake.snapshots.opening import read_pickle
from gmlake.units import format_size

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen")


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, Any]:
    outcome = run_program("seen", str(folder), settings=("--backed", "--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_a_snapshot_agrees_with_what_pytorch_counts(seen: dict[str, Any]) -> None:
    assert seen["before"] == "<gmlake.Snapshot: nothing held>"
    assert seen["live_bytes"] == seen["swept_bytes"] == seen["counted_bytes"]
    assert seen["peak_bytes"] == seen["counted_peak_bytes"]
    assert seen["events"] > 200
    assert seen["finds_a_tensor"]


def test_who_has_what_of_the_device_is_told() -> None:
    outcome = run_program("seen", "share", settings=("--capacity", "1GiB"))
    assert outcome.code == 0, outcome.errors
    told = outcome.results
    counters = told["counters"]
    assert counters["device_bytes"] == 1 << 30
    # A slab of 2 MiB more: the numbers that graphs share lie outside of regions.
    assert counters["reserved_bytes"] == (100 + 2) << 20
    assert counters["pytorch_bytes"] == 60 << 20
    assert counters["regions_bytes"] == 80 << 20
    others = 1024 - 102 - 60 - 80 - (counters["device_free_bytes"] >> 20)
    assert counters["other_bytes"] >> 20 == others >= 40
    asleep = told["asleep"]
    assert asleep["regions_bytes"] == 0
    assert asleep["device_free_bytes"] - counters["device_free_bytes"] == 80 << 20
    for name in ("pytorch_bytes", "other_bytes"):
        assert asleep[name] == counters[name]
    assert told["facts"]["regions that are awake"] == "80.0 MiB"
    assert told["left"] >= counters["device_free_bytes"]
    assert told["facts"]["PyTorch's own allocator"] == "60.0 MiB"
    assert told["facts"]["all else on the device"] == format_size(counters["other_bytes"])
    assert "left on the device" in told["table"]


@pytest.mark.parametrize("name", ["seen.pickle", "dumped.pickle"])
def test_pytorch_reads_them(seen: dict[str, Any], folder: Path, name: str) -> None:
    data: Any = read_pickle((folder / name).read_bytes())
    assert "total_reserved" in _memory_viz.segsum(data)
    actions = Counter(event["action"] for event in data["device_traces"][0])
    assert actions["alloc"] > 100
    assert actions["free_completed"] == actions["free_requested"]
    assert "Device 0" in _memory_viz.trace(data)
    assert seen["events"] <= sum(actions.values())


@pytest.mark.long
def test_the_example_knows_what_its_memory_is_for(tmp_path: Path) -> None:
    saved = tmp_path / "training.pickle"
    script = str(ROOT / "examples" / "see_training.py")
    ended = run(script, "--size", "tiny", "-o", str(saved), settings=("--capacity", "1GiB"))
    assert ended.code == 0, ended.errors
    assert f"gmlake view {saved} --plan --replay all" in ended.output
    figures = gmlake.load(saved).report().figures
    timeline = next(one for one in figures if isinstance(one, Timeline))
    assert {"parameter", "gradient", "optimizer state", "activation"} <= set(timeline.live)
    assert timeline.marks
