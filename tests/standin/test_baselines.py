"""The judge of `caching` and `expandable`: real programs recorded under PyTorch's own allocator.

Each workload of benchmarks/workloads runs twice, in processes of its own on the stand-in: under
PyTorch's default allocator and with expandable segments. Given the same requests, the policies have
to do what PyTorch did: every address, every statistic, every segment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.trace import Kind, Trace
from validating import Notes, ValidationResult, load_notes, validate
from validating.asking import LATE, requests_of
from validating.configuration import configuration_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "workloads" / "record.py"
ALLOCATORS = ("default", "expandable")
# Of each kind one; `make differential` goes on with requests at random.
WORKLOADS = (
    *("1.3b-checkpoint", "varying", "accumulation", "evaluation", "out-of-memory", "tight"),
    *("experts", "offload", "convolutions", "storm"),
)
WITH_STREAMS = ("experts", "offload", "storm")
WITH_TRIMS = ("evaluation", "convolutions", "storm")
WITH_REFUSALS = ("out-of-memory", "storm")
WITH_RETRIES = ("tight", "storm")


@dataclass(frozen=True)
class Recording:
    """One workload under one allocator."""

    trace: Trace
    notes: Notes
    told: dict[str, Any]

    @property
    def last(self) -> dict[str, int]:
        """What torch.cuda.memory_stats() said at the end."""
        stats: dict[str, int] = self.told["marks"][-1]["stats"]
        return stats

    def validate(self) -> ValidationResult:
        result = validate(self.trace, self.notes)
        assert result.is_complete, "\n".join(result.differences)
        return result


def record(folder: Path, names: Sequence[str], **settings: str) -> None:
    """Record workloads under both allocators, which run side by side."""
    options = ["--only", ",".join(names), "--scale", "short", "--steps", "2"]
    started = [
        subprocess.Popen(
            [sys.executable, RECORD, "--allocator", name, "--output", folder / name, *options],
            env={**os.environ, **settings},
        )
        for name in ALLOCATORS
    ]
    codes = [process.wait() for process in started]
    assert codes == [0, 0], "the output above names what failed"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recording of every workload under both allocators."""
    folder = tmp_path_factory.mktemp("recordings")
    record(folder, WORKLOADS)
    return folder


def read(folder: Path, name: str, allocator: str) -> Recording:
    path = folder / allocator / f"{name}.pickle"
    beside = path.with_suffix(".json")
    told = json.loads(beside.read_text())
    return Recording(gmlake.load(path).devices[0].trace, load_notes(beside), told)


@pytest.fixture
def recording(folder: Path) -> Callable[[str, str], Recording]:
    """Return a function that reads the recording of a workload under an allocator."""
    return partial(read, folder)


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
def test_caching_is_the_default_allocator(
    recording: Callable[[str, str], Recording], name: str
) -> None:
    recorded = recording(name, "default")
    result = recorded.validate()
    refused = int(np.count_nonzero(recorded.trace.requests["kind"] == Kind.OOM))
    assert result.policy == "caching"
    assert result.allocations == recorded.trace.allocations + refused > 300
    assert result.segments > 3
    assert result.final_blocks >= result.segments
    assert result.statistics == sum(len(mark["stats"]) for mark in recorded.told["marks"])
    assert result.statistics >= 5 * 100, "at the begin, at the end and at marks between"


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
def test_expandable_is_pytorch_with_expandable_segments(
    recording: Callable[[str, str], Recording], name: str
) -> None:
    recorded = recording(name, "expandable")
    result = recorded.validate()
    assert result.policy == "expandable"
    assert result.reserved_events > 2 * recorded.trace.allocations
    assert result.peak_reserved_bytes == recorded.told["peak_reserved_bytes"] > 0
    assert result.statistics == sum(len(mark["stats"]) for mark in recorded.told["marks"])


@pytest.mark.long
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_recording_tells_the_whole_scenario(
    recording: Callable[[str, str], Recording], allocator: str
) -> None:
    for name in WORKLOADS:
        recorded = recording(name, allocator)
        first, *_, last = recorded.told["marks"]
        assert len(recorded.trace.start_blocks) == len(recorded.trace.start_segments) == 0
        assert first["events"] == first["stats"]["reserved_bytes.all.allocated"] == 0
        kind = recorded.trace.requests["kind"]
        assert last["events"] == recorded.told["events"] == np.count_nonzero(kind != Kind.MARK)
        assert last["stats"]["allocation.all.allocated"] == recorded.trace.allocations
        assert recorded.told["allocator"] == allocator
        assert recorded.told["device"], "what it ran on"


@pytest.mark.long
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_workloads_are_as_hard_as_they_say(
    recording: Callable[[str, str], Recording], allocator: str
) -> None:
    for name in WITH_STREAMS:
        trace = recording(name, allocator).trace
        allocated = trace.requests["stream"][trace.requests["kind"] == Kind.ALLOC]
        assert len(np.unique(allocated)) >= 2, name
    for name in WITH_TRIMS:
        assert recording(name, allocator).last["num_device_free"] > 0, name
    for name in WITH_REFUSALS:
        assert recording(name, allocator).last["num_ooms"] > 0, name
    for name in WITH_RETRIES:
        last = recording(name, allocator).last
        assert last["num_alloc_retries"] > last["num_ooms"], name


def test_a_device_that_is_full_counts_like_a_limit(tmp_path: Path) -> None:
    """The workloads set PyTorch a limit of its own; here the device itself has no more."""
    record(tmp_path, ["storm"], GMLAKE_STANDIN_CAPACITY="2GiB")
    for allocator in ALLOCATORS:
        recorded = read(tmp_path, "storm", allocator)
        assert recorded.told["limit_bytes"] is None
        assert recorded.told["total_bytes"] == recorded.notes.capacity_bytes == 2 << 30
        assert recorded.last["num_alloc_retries"] > recorded.last["num_ooms"] > 0
        recorded.validate()


@pytest.mark.long
def test_a_planted_difference_is_found(recording: Callable[[str, str], Recording]) -> None:
    recorded = recording("varying", "default")
    allocs = np.flatnonzero(recorded.trace.requests["kind"] == Kind.ALLOC)
    recorded.trace.requests["size_bytes"][allocs[len(allocs) // 2]] += 40 << 20
    result = validate(recorded.trace, recorded.notes)
    assert result.addresses_matched < result.allocations
    assert result.statistics_matched < result.statistics


@pytest.mark.long
def test_some_retries_waited_for_another_stream(
    recording: Callable[[str, str], Recording],
) -> None:
    """Frees that wait until memory runs out are the hardest case, so the stress has to have it."""
    recorded = recording("storm", "default")
    trace, notes = recorded.trace, recorded.notes
    requests = requests_of(trace, notes, configuration_of(trace, notes))
    late = np.flatnonzero(requests["pool"] == LATE)
    is_just_let_go = requests["id"][late] == requests["id"][late - 1]
    assert np.count_nonzero(~is_just_let_go) > 0
