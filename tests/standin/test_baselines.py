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

import pytest

import gmlake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "workloads" / "record.py"
ALLOCATORS = ("default", "expandable")
WORKLOADS = (
    "gpt2-medium",
    "1.3b-checkpoint",
    "varying",
    "accumulation",
    "evaluation",
    "out-of-memory",
    "tight",
    "decode",
    "prefetch",
    "experts",
    "offload",
    "convolutions",
    "lora",
    "storm",
)


@dataclass(frozen=True)
class Recording:
    """One workload under one allocator."""

    trace: gmlake.Trace
    notes: gmlake.Notes
    told: dict[str, Any]

    @property
    def last(self) -> dict[str, int]:
        """What torch.cuda.memory_stats() said at the end."""
        stats: dict[str, int] = self.told["marks"][-1]["stats"]
        return stats

    def validate(self) -> gmlake.ValidationResult:
        (result,) = gmlake.validate(self.trace, self.notes).results
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
    return Recording(gmlake.load_trace(path), gmlake.load_notes(beside), told)


@pytest.fixture
def recording(folder: Path) -> Callable[[str, str], Recording]:
    """Return a function that reads the recording of a workload under an allocator."""
    return partial(read, folder)


def test_a_device_that_is_full_counts_like_a_limit(tmp_path: Path) -> None:
    """The workloads set PyTorch a limit of its own; here the device itself has no more."""
    record(tmp_path, ["storm"], GMLAKE_STANDIN_CAPACITY="2GiB")
    for allocator in ALLOCATORS:
        recorded = read(tmp_path, "storm", allocator)
        assert recorded.told["limit_bytes"] is None
        assert recorded.told["total_bytes"] == recorded.notes.capacity_bytes == 2 << 30
        assert recorded.last["num_alloc_retries"] > recorded.last["num_ooms"] > 0
        recorded.validate()
