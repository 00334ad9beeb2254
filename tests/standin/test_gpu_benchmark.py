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
from tests.standin.places import ROOT

import gmlake

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


@pytest.mark.long
def test_every_allocator_trains(tmp_path: Path) -> None:
    status, figures = measure("gpu.compare", tmp_path, "--no-search")
    assert status == 0
    assert set(figures["runs"]) == {"default", "expandable", "async", "gmlake"}
    allocated = {told["peak_allocated_bytes"] for told in figures["runs"].values()}
    assert max(allocated) < 1.1 * min(allocated)
    for told in figures["runs"].values():
        assert told["model_bytes"] < told["peak_allocated_bytes"] <= told["peak_reserved_bytes"]
        assert 0 < told["utilization"] <= 1
        assert told["device_bytes"] > 0
        assert len(told["seconds"]) == figures["steps"] == len(figures["losses"])
    assert figures["runs"]["gmlake"]["gmlake"]["mode"] == "native"


@pytest.mark.long
def test_the_largest_batch_is_found(tmp_path: Path) -> None:
    status, figures = measure("gpu.compare", tmp_path, "--allocators", "gmlake")
    found = figures["runs"]["gmlake"]["largest"]
    assert status == 0
    assert found["tried"][str(found["batch"])] is True
    assert found["tried"][str(found["batch"] + 1)] is False


@pytest.mark.long
@pytest.mark.parametrize("way", ["default", "gmlake"])
def test_every_scenario_of_the_gpu_tests_runs(way: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.standin", "--devices", "2"),
            *("--capacity", "40GiB", str(ROOT / "tests" / "python" / "gpu" / "on_gpu.py"), way),
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
    if way != "default":
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


@pytest.mark.long
def test_planned_training_runs(tmp_path: Path) -> None:
    options = ("--steps", "12", "--batch", "16", "--rounds", "1")
    status, figures = measure("gpu.planned", tmp_path, *options)
    assert status == 0
    runs = figures["runs"]
    assert set(runs) == {"default", "expandable", "stitch", "planned", "loaded"}
    assert all(told["has_same_losses"] for told in runs.values())
    trained = [step for step in runs["planned"]["steps"] if step["kind"] == "train"]
    assert trained[-1]["hit_rate"] == 1
    assert trained[-1]["driver_calls"] == 0
    assert runs["loaded"]["steps"][0]["served"] > 0


@pytest.fixture(scope="module")
def varying(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Run each kind of program that takes one process; return what was printed and written."""
    output = tmp_path_factory.mktemp("varying") / "table.json"
    programs = "llama-1b,llama-1b-checkpoint,lora,moe,convnet,generate"
    done = against("--programs", programs, "--rounds", "1", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return done.stdout, figures


def against(*options: str, steps: int = 3) -> subprocess.CompletedProcess[str]:
    """Run gpu.against on tiny programs under the default allocator and gmlake."""
    paths = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "gpu.against", "--size", "tiny", "--steps", str(steps)]
    command += ["--allocators", "default,gmlake:chunk_size=4MiB", "--backend", "gloo", *options]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_programs_that_never_repeat_run(varying: tuple[str, dict[str, Any]]) -> None:
    _, figures = varying
    assert figures["is_complete"]
    assert len(figures["runs"]) == 2 * 6
    for run in figures["runs"]:
        assert run["has_finished"], run
        assert len(run["seconds"]) == len(figures["losses"][run["program"]]) == 3
        assert run["peak_allocated_bytes"] <= run["peak_reserved_bytes"]
        assert run["has_same_losses"]
        if run["allocator"] != "default":
            assert len(run["gmlake"]["driver_calls_by_step"]) == 3
            assert run["late_driver_share"] < 1


@pytest.mark.long
def test_the_table_of_programs_that_never_repeat(varying: tuple[str, dict[str, Any]]) -> None:
    printed, figures = varying
    assert [row["allocator"][:6] for row in figures["summary"]] == ["defaul", "gmlake"] * 6
    for row in figures["summary"]:
        assert row["finished"] == row["rounds"] == 1
        assert row["late_step_seconds"]["least"] <= row["late_step_seconds"]["most"]
        assert f" {row['program']} " in printed
    assert "DIFFER" not in printed


@pytest.mark.long
def test_little_memory_is_told_as_such(tmp_path: Path) -> None:
    output = tmp_path / "curve.json"
    options = ("--programs", "convnet", "--rounds", "1", "--fractions", "0.5,2")
    done = against(*options, "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(output.read_text(encoding="utf-8"))
    reference, *rows = figures["summary"]
    assert (reference["fraction"], reference["allocator"]) == (0, "gmlake:chunk_size=4MiB")
    live = reference["peak_allocated_bytes"]["median"]
    assert [row["fraction"] for row in rows] == [2, 2, 0.5, 0.5]
    assert [row["finished"] for row in rows] == [1, 1, 0, 0]
    for run in figures["runs"][1:]:
        assert run["limit_bytes"] == int(run["fraction"] * live)
    for run in figures["runs"][3:]:
        assert run["failed_step"] >= 1
        assert "out of memory" in run["message"]
        assert len(run["seconds"]) == run["failed_step"] - 1
    assert "OOM, step" in done.stdout


@pytest.mark.long
def test_a_program_of_several_processes_runs(tmp_path: Path) -> None:
    output = tmp_path / "sharded.json"
    paths = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.standin", "--devices", "2", "--capacity", "4GiB"),
            *("-m", "gpu.against", "--size", "tiny", "--steps", "3", "--programs", "fsdp2"),
            *("--allocators", "default,gmlake", "--rounds", "1", "--backend", "gloo"),
            *("--output", str(output)),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for run in json.loads(output.read_text(encoding="utf-8"))["runs"]:
        assert len(run["rank_peaks"]) == 2
        assert run["peak_reserved_bytes"] == max(
            peaks["peak_reserved_bytes"] for peaks in run["rank_peaks"]
        )


@pytest.mark.long
def test_a_spent_budget_keeps_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "table.json"
    options = ("--programs", "moe", "--rounds", "50", "--budget-seconds", "12")
    done = against(*options, "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(output.read_text(encoding="utf-8"))
    assert "the budget is spent" in done.stdout
    assert not figures["is_complete"]
    assert 0 < len(figures["runs"]) < 100


@pytest.mark.long
def test_a_recording_begins_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "moe.gmtrace"
    paths = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gpu.varying", "moe", "--size", "tiny", "--steps", "3"),
            *("--record", str(path)),
        ],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, trace = json.loads(done.stdout), gmlake.load_trace(path)
    assert len(trace.start_blocks) == 0
    assert trace.labels == ("step 1", "step 2", "step 3")
    assert trace.peak_live_bytes == told["recording"]["peak_live_bytes"]
    assert trace.peak_live_bytes <= told["peak_allocated_bytes"]


@pytest.mark.parametrize("text", ["other", "default:growth=1GiB", "gmlake:growth"])
def test_an_allocator_that_cannot_be_is_told(text: str) -> None:
    done = against("--allocators", text)
    assert done.returncode == 2
    assert text in done.stderr


def test_every_program_has_a_name_and_a_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    named, made = (importlib.import_module(f"gpu.{name}") for name in ("settings", "programs"))
    assert list(named.PROGRAMS) == list(made.MAKERS)
