"""Programs of the usual frameworks, unchanged, under `gmlake run`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from tests.standin.gmlake_run import RUN, TORCHRUN, Ended, finish, program, start

if TYPE_CHECKING:
    from pathlib import Path

WAYS = ("default", "gmlake")


def outcomes(name: str, folder: Path, capacity: str) -> dict[str, Ended]:
    """Run a program under PyTorch's own allocator and under gmlake, at once."""
    settings = ("--backed", "--devices", "1", "--capacity", capacity)
    processes = {}
    for way in WAYS:
        served = () if way == "default" else (*RUN, "--report")
        words = (*served, program(name), str(folder / way))
        processes[way] = start(*words, settings=settings)
    return {way: finish(process) for way, process in processes.items()}


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    return outcomes("trainer", tmp_path_factory.mktemp("transformers"), "1GiB")


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    pytest.importorskip("lightning")
    return outcomes("lightning_trainer", tmp_path_factory.mktemp("lightning"), "256MiB")


@pytest.fixture(scope="module")
def accelerate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    pytest.importorskip("accelerate")
    return outcomes("accelerated", tmp_path_factory.mktemp("accelerate"), "256MiB")


def check(ended: Ended, way: str) -> None:
    """It ended well, with losses that are numbers, and was served as it should be."""
    assert ended.code == 0, ended.errors
    for result in ended.results:
        assert result["backend"] == "native"
        assert result["losses"]
        assert all(map(math.isfinite, result["losses"]))
    assert len(ended.reports) == (0 if way == "default" else len(ended.results))
    assert all(int(report["allocations"].replace(",", "")) > 0 for report in ended.reports)


def check_statistics(stats: dict[str, int], default: dict[str, int]) -> None:
    """What is asked for is the same; what is held for it is no more than PyTorch's own holds."""
    for name in ("requested_bytes.all.current", "requested_bytes.all.peak", "allocation.all.peak"):
        assert stats[name] == default[name], name
    for when in ("current", "peak"):
        allocated = stats[f"allocated_bytes.all.{when}"]
        assert stats[f"requested_bytes.all.{when}"] <= allocated
        assert allocated <= default[f"allocated_bytes.all.{when}"]
        assert allocated <= stats[f"reserved_bytes.all.{when}"]


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_trainer_of_transformers_runs(transformers: dict[str, Ended], way: str) -> None:
    check(transformers[way], way)
    assert transformers[way].result["steps"] == 8


@pytest.mark.long
def test_a_trainer_of_transformers_logs_memory(transformers: dict[str, Ended]) -> None:
    result, default = transformers["gmlake"].result, transformers["default"].result
    check_statistics(result["stats"], default["stats"])
    for name in ("before_init_mem_gpu", "init_mem_gpu_alloc_delta", "train_mem_gpu_alloc_delta"):
        assert result["metrics"][name] == default["metrics"][name], name
    assert result["metrics"]["train_mem_gpu_peaked_delta"] > 0


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_trainer_of_lightning_runs(lightning: dict[str, Ended], way: str) -> None:
    check(lightning[way], way)
    assert lightning[way].result["steps"] == 12


@pytest.mark.long
def test_a_trainer_of_lightning_logs_memory(lightning: dict[str, Ended]) -> None:
    result, default = lightning["gmlake"].result, lightning["default"].result
    assert len(result["logged"]) == len(default["logged"]) == 12
    for logged, expected in zip(result["logged"], default["logged"], strict=True):
        assert logged.keys() == expected.keys()
        check_statistics(logged, expected)


@pytest.mark.parametrize("way", WAYS)
def test_a_loop_of_accelerate_finds_a_batch_that_fits(
    accelerate: dict[str, Ended], way: str
) -> None:
    check(accelerate[way], way)
    result = accelerate[way].result
    assert len(result["tried"]) > 1
    assert result["stats"]["num_ooms"] == len(result["tried"]) - 1


@pytest.mark.long
def test_torchrun_under_gmlake_run() -> None:
    words = (*RUN, "--report", *TORCHRUN, program("elastic"), "--policy", "x")
    ended = finish(start(*words, settings=("--backed", "--devices", "2", "--capacity", "256MiB")))
    check(ended, "gmlake")
    results = sorted(ended.results, key=lambda result: int(result["rank"]))
    assert [result["rank"] for result in results] == [0, 1]
    for result in results:
        assert result["arguments"] == ["--policy", "x"]
        assert result["other_device"] == 0
        stats = result["stats"]
        # Weights, gradients in buckets, and two states of the optimizer.
        assert stats["requested_bytes.all.peak"] > 4 * 4 * (512 * 2048 + 2048 * 16)
        assert stats["allocated_bytes.all.peak"] <= stats["reserved_bytes.all.peak"]
    reports = sorted(ended.reports, key=lambda report: report["name"])
    assert [report["name"] for report in reports] == ["rank 0", "rank 1"]
    assert [report["device"] for report in reports] == ["0", "1"]
