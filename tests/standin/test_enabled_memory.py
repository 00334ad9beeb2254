"""What torch.cuda says of memory that gmlake serves."""

# mypy: allow-untyped-calls

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.standin.running import run_program

import gmlake

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


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
def statistics() -> dict[str, Any]:
    return run("statistics")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("snapshots") / "snapshot.pickle"


@pytest.fixture(scope="module")
def snapshots(dump: Path) -> dict[str, Any]:
    return run("snapshots", str(dump))


def shape(nested: dict[str, Any]) -> dict[str, Any]:
    return {
        name: shape(value) if isinstance(value, dict) else type(value).__name__
        for name, value in nested.items()
    }


def test_statistics_say_what_the_program_holds(statistics: dict[str, Any]) -> None:
    assert statistics["unused"] == [0, {}]
    now, peak, held = statistics["allocated"]
    assert now == peak == held
    for name in ("requested", "count", "small", "large", "reserved"):
        found, expected = statistics[name]
        assert found == expected, name
    assert statistics["after_free"] == [statistics["peak_reset"][0], 0]
    assert len(set(statistics["peak_reset"])) == 1


def test_statistics_have_the_names_that_pytorch_gives_them(statistics: dict[str, Any]) -> None:
    held = torch.ones(10, device="cuda")
    expected = shape(torch.cuda.memory_stats_as_nested_dict())
    names = [*torch.cuda.memory_stats()]
    by_pool = "reserved_bytes_by_private_pools"  # of which this process may have some
    if by_pool in expected:
        expected[by_pool] = {}
    assert statistics["nested"] == expected
    assert statistics["keys"] == len([name for name in names if not name.startswith(by_pool)])
    assert statistics["summary"] == torch.cuda.memory_summary().count("\n")
    del held


def test_the_names_of_the_accelerator_say_the_same(statistics: dict[str, Any]) -> None:
    assert all(statistics["accelerator"])
    assert statistics["emptied_twin"] == 0


def test_counters_begin_again(statistics: dict[str, Any]) -> None:
    freed, *rest = statistics["accumulated"]
    assert freed == 40 * MIB
    assert rest == [0, 0, 0, 0]
    assert statistics["accumulates"] == 4 * MIB


def test_emptying_the_cache_gives_back_all_that_is_idle(statistics: dict[str, Any]) -> None:
    assert statistics["emptied"] == [True, 0, True]


def test_every_device_has_statistics_of_its_own(statistics: dict[str, Any]) -> None:
    assert statistics["other_device"] == [0, 0, statistics["keys"]]
    assert statistics["cross_device"] == [3 * MIB, 0, 1, 0, 0]
    assert all(text.startswith("RuntimeError: Invalid device") for text in statistics["no_device"])


def test_a_snapshot_adds_up_to_the_statistics(snapshots: dict[str, Any]) -> None:
    for name, (found, expected) in snapshots["sums"].items():
        assert found == expected > 0, name
    assert snapshots["is_apart"]
    assert snapshots["is_tiled"]
    assert snapshots["is_side_there"]
    assert snapshots["light"]
    assert snapshots["of_a_pool"] == []


def test_a_snapshot_has_the_form_of_pytorchs(snapshots: dict[str, Any]) -> None:
    torch.cuda.memory._record_memory_history(context=None)  # noqa: SLF001
    held = torch.ones(10, device="cuda")
    native = torch.cuda.memory._snapshot()  # noqa: SLF001
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
    segment = native["segments"][0]
    assert snapshots["parts"] == sorted({*native, "external_annotations"})
    assert snapshots["segment"] == sorted(segment)
    assert snapshots["block"] == sorted(segment["blocks"][0])
    assert snapshots["event"] == sorted({*native["device_traces"][0][0], "frames"})
    del held


def test_events_are_recorded_until_they_are_not(snapshots: dict[str, Any]) -> None:
    assert snapshots["is_recording"]
    assert snapshots["traces"] == [2, 1]  # the snapshot itself, on the other device
    of_segments = [action for action in snapshots["actions"] if action.startswith("segment_")]
    assert "segment_map" in of_segments
    others = [action for action in snapshots["actions"] if action not in of_segments]
    assert others == ["alloc", "free_completed", "free_requested", "oom", "snapshot"]
    assert snapshots["oom"] == [1 << 48]
    assert snapshots["live"]
    assert snapshots["two"] == ["free_requested", "free_completed"]
    assert snapshots["skipped"][-2:] == ["alloc", "free_completed"]
    assert snapshots["stopped"] == [[], False]
    assert snapshots["legacy"] == 3
    assert all(text.startswith("RuntimeError: ") for text in snapshots["bad"])


def test_a_snapshot_is_replayed(snapshots: dict[str, Any], dump: Path) -> None:
    trace = gmlake.load_trace(dump)
    live = snapshots["sums"]["allocated_bytes"][1]
    assert int(trace.final_blocks["block_bytes"][trace.final_blocks["is_used"]].sum()) == live
    report = gmlake.replay(trace, policies="all")
    assert {result.policy for result in report.results} == set(gmlake.policies())
    assert all(result.peak_live_bytes >= live for result in report.results)


@pytest.mark.parametrize(
    "command",
    [
        "trace_plot",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("trace", "stats", "segment_plot")
        ),
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


def test_memory_for_other_libraries_is_served() -> None:
    assert run("libraries") == {"raw": 5120, "left": 0, "warnings": [], "misuses": 0}
