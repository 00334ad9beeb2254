"""What torch.cuda says of memory that gmlake serves."""

# mypy: allow-untyped-calls

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.running import run_program

import gmlake
from gmlake.snapshots.whole import of_one_trace

if TYPE_CHECKING:
    from pathlib import Path


@cache
def run(name: str, *arguments: str) -> dict[str, Any]:
    """Run one function of the program `enabled_memory`."""
    outcome = run_program(
        "enabled_memory", name, *arguments, settings=("--capacity", "8GiB", "--devices", "2")
    )
    assert outcome.code == 0, outcome.errors
    assert outcome.results["misuses"] == 0
    return outcome.results


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("snapshots") / "snapshot.pickle"


@pytest.fixture(scope="module")
def snapshots(dump: Path) -> dict[str, Any]:
    return run("snapshots", str(dump))


def test_a_snapshot_adds_up_to_the_statistics(snapshots: dict[str, Any]) -> None:
    for name, (found, expected) in snapshots["sums"].items():
        assert found == expected > 0, name
    assert snapshots["is_apart"]
    assert snapshots["is_tiled"]
    assert snapshots["is_side_there"]
    assert snapshots["light"]
    assert snapshots["of_a_pool"] == []


def test_a_snapshot_is_replayed(snapshots: dict[str, Any], dump: Path) -> None:
    trace = gmlake.load(dump).devices[0].trace
    live = snapshots["sums"]["allocated_bytes"][1]
    assert int(trace.ranges["size_bytes"][trace.ranges["is_used"]].sum()) == live
    report = gmlake.replay(of_one_trace(trace), policies="all")
    assert {result.policy for result in report.results} == set(gmlake.policies())
    assert all(result.peak_live_bytes >= live for result in report.results)


@pytest.mark.parametrize(
    "command",
    [
        "trace_plot",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("stats", "segment_plot")),
    ],
)
def test_pytorchs_viewer_reads_a_snapshot(
    snapshots: dict[str, Any], dump: Path, command: str, tmp_path: Path
) -> None:
    assert snapshots["is_recording"]
    with dump.open("rb") as file:
        assert pickle.load(file)["allocator_settings"]["expandable_segments"] is False
    page = tmp_path / "page.html"
    target = ["-o", str(page)] if command.endswith("plot") else []
    done = subprocess.run(
        [sys.executable, "-m", "torch.cuda._memory_viz", command, str(dump), *target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 1000 if target else done.stdout
