"""What a GPU has to show, run where there is none: that it runs, and what it writes down.

Kernels do nothing here, so that values, losses and speed mean nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.launcher import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BENCHMARKS = ROOT / "benchmarks"


def measure(program: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run a benchmark; return its exit status and what it wrote."""
    output = folder / "figures.json"
    paths = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", program, "--size", "tiny", "--output", str(output)]
    done = subprocess.run(
        [*command, *options],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert output.exists(), done.stdout + done.stderr
    figures: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    assert "failed" not in output.read_text(encoding="utf-8"), figures
    return done.returncode, figures


@pytest.mark.slow
def test_every_allocator_trains(tmp_path: Path) -> None:
    status, figures = measure("gpu.compare", tmp_path, "--no-search")
    assert status == 0
    assert set(figures["runs"]) == {"default", "expandable", "async", "gmlake", "gmlake-pool"}
    allocated = {told["peak_allocated_bytes"] for told in figures["runs"].values()}
    assert max(allocated) < 1.1 * min(allocated)
    for told in figures["runs"].values():
        assert told["model_bytes"] < told["peak_allocated_bytes"] <= told["peak_reserved_bytes"]
        assert 0 < told["utilization"] <= 1
        assert told["device_bytes"] > 0
        assert len(told["seconds"]) == figures["steps"] == len(figures["losses"])
    assert figures["runs"]["gmlake"]["gmlake"]["mode"] == "full"
    assert figures["runs"]["gmlake-pool"]["gmlake"]["mode"] == "pool"


@pytest.mark.slow
def test_the_largest_batch_is_found(tmp_path: Path) -> None:
    status, figures = measure("gpu.compare", tmp_path, "--allocators", "gmlake")
    found = figures["runs"]["gmlake"]["largest"]
    assert status == 0
    assert found["tried"][str(found["batch"])] is True
    assert found["tried"][str(found["batch"] + 1)] is False


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "devices"), [("default", 2), ("full", 2), ("pool", 2)])
def test_every_scenario_of_the_gpu_tests_runs(mode: str, devices: int) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.standin", "--devices", str(devices)),
            *("--capacity", "40GiB", str(ROOT / "tests" / "python" / "on_gpu.py"), mode),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # 70 where a rule of CUDA was broken
    answers = json.loads(done.stdout)
    assert [answer["raised"] for answer in answers.values() if "raised" in answer] == []
    assert "out of memory" in answers["out_of_memory"]["message"]
    assert answers["trimming"]["missing_bytes"] == 0
    assert answers["statistics"]["allocated_bytes"] == 10 << 20
    if mode == "full":
        assert answers["stitched"]["states"]["stitch"] >= 1
        assert answers["stitched"]["grown_bytes"] == 0


def test_an_allocator_that_does_not_exist_is_told() -> None:
    paths = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "gpu.compare", "--allocators", "default,other"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no allocator is called 'other'" in done.stderr


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], bool], int], int]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    search: Callable[[Callable[[int], bool], int], int] = importlib.import_module(
        "gpu.compare"
    ).largest
    return search


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("guess", [-3, 1, 2, 7, 8, 30, 200])
def test_the_search_finds_the_limit_from_any_guess(
    largest: Callable[[Callable[[int], bool], int], int], limit: int, guess: int
) -> None:
    asked: list[int] = []

    def fits(batch: int) -> bool:
        asked.append(batch)
        return batch <= limit

    assert largest(fits, guess) == limit
    assert len(asked) == len(set(asked))
    assert min(asked) >= 1


@pytest.mark.slow
def test_planned_training_runs(tmp_path: Path) -> None:
    options = ("--steps", "12", "--batch", "2", "--rounds", "1")
    status, figures = measure("gpu.planned", tmp_path, *options)
    assert status == 0
    runs = figures["runs"]
    assert set(runs) == {"default", "expandable", "stitch", "planned", "loaded"}
    assert all(told["has_same_losses"] for told in runs.values())
    trained = [step for step in runs["planned"]["steps"] if step["kind"] == "train"]
    assert trained[-1]["hit_rate"] == 1
    assert trained[-1]["driver_calls"] == 0
    assert runs["loaded"]["steps"][0]["is_planned"]
