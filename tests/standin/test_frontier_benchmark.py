"""Training on longer and longer sequences, as benchmarks/gpu/frontier.py measures it on GPUs.

Kernels do nothing here, so that speeds are the host's.
"""

from __future__ import annotations

import importlib
import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run_benchmark
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARKS = ROOT / "benchmarks"


def run(
    folder: Path, *options: str, settings: tuple[str, ...] = ("--capacity", "4GiB")
) -> tuple[str, list[dict[str, Any]]]:
    """Run it with tiny sizes, once each; return what it printed, and the runs it wrote."""
    words = ("--tiny", "--rounds", "1", "--output", "frontier.json", *options)
    ended = run_benchmark("gpu.frontier", folder, *words, settings=settings)
    output = folder / "frontier.json"
    assert output.exists(), ended.output + ended.errors
    runs: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["runs"]
    return ended.output, runs


@pytest.mark.long
@pytest.mark.parametrize("model", ["dense", "moe"])
def test_every_allocator_is_told_for_every_length(model: str, tmp_path: Path) -> None:
    printed, runs = run(tmp_path, "--models", model)
    assert [told["allocator"] for told in runs] == ["default", "expandable", "async", "gmlake"]
    for told in runs:
        assert [at["longest"] for at in told["lengths"]] == [64, 128]
        for at in told["lengths"]:
            assert at["tokens_per_second"] > 0
            assert 0 < at["peak_allocated_bytes"] <= at["peak_reserved_bytes"]
        assert (told["lengths"][1]["driver_ns"] > 0) <= (told["allocator"] == "gmlake")
    short, long = (at["peak_allocated_bytes"] for at in runs[0]["lengths"])
    assert short < long
    assert "losses are the same" in printed


@pytest.mark.long
def test_a_run_ends_with_the_length_that_is_refused(tmp_path: Path) -> None:
    options = ("--models", "dense", "--allocators", "default", "gmlake")
    _, runs = run(
        tmp_path,
        *(*options, "--lengths", "64", "60000", "70000"),
        settings=("--capacity", "512MiB"),
    )
    for told in runs:
        served, refused = told["lengths"]
        assert (served["longest"], refused["longest"]) == (64, 60000)
        assert "out of memory" in refused["refused"]


@pytest.mark.long
def test_ranks_of_one_job_are_added_up(tmp_path: Path) -> None:
    options = ("--models", "fsdp2", "--allocators", "gmlake", "--backend", "gloo")
    _, runs = run(tmp_path, *options, settings=("--capacity", "4GiB", "--devices", "2"))
    (told,) = runs
    assert [at["longest"] for at in told["lengths"]] == [64, 128]
    assert all(len(at["loss"]) == 2 for at in told["lengths"])


# ---- made-up figures -----------------------------------------------------------------------------


@pytest.fixture
def frontier(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu.frontier")


def at(longest: int, speed: float, loss: str = "0x1p+0") -> dict[str, Any]:
    """Return what is told of a length."""
    peaks = {"peak_allocated_bytes": int(speed), "peak_reserved_bytes": int(speed), "retries": 0}
    times = {"tokens_per_second": speed, "driver_ns": 50_000_000, "timed_seconds": 2.0}
    return {"longest": longest, "loss": loss, **times, **peaks}


def test_the_ranks_have_the_tokens_of_all_and_the_peak_of_the_worst(frontier: Any) -> None:
    (told,) = frontier.of_ranks([[at(64, 10.0)], [at(64, 30.0)]])
    assert (told["tokens_per_second"], told["peak_reserved_bytes"]) == (40.0, 30)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_one_rank_is_refused_is_refused(frontier: Any, rank: int) -> None:
    refused = {"longest": 128, "refused": "out of memory"}
    for others in ([at(64, 1.0)], [at(64, 1.0), at(128, 1.0)]):
        files = [others, others]
        files[rank] = [at(64, 1.0), refused]
        told = frontier.of_ranks(files)
        assert [each["longest"] for each in told] == [64, 128]
        assert told[1] == refused


def test_a_length_counts_where_all_rounds_came_through_it(frontier: Any) -> None:
    lengths = ([at(64, 3.0), at(128, 1.0)], [at(64, 1.0)], [at(64, 2.0)])
    runs = [{"model": "dense", "allocator": "default", "lengths": each} for each in lengths]
    assert frontier.medians(runs) == {"default": {64: (1.0, 2.0, 3.0)}}


def test_a_loss_that_differs_is_named(frontier: Any) -> None:
    runs = [
        {"model": "dense", "lengths": [at(64, 1.0, loss), at(128, 1.0)]} for loss in ("0x1", "0x2")
    ]
    assert frontier.differing(runs) == ["dense 64"]


def test_a_picture_has_a_line_and_a_cross_for_each_that_ran(frontier: Any) -> None:
    assert frontier
    pictures = importlib.import_module("gpu.frontier_picture").pictures
    runs = [
        {"model": model, "allocator": name, "lengths": [at(64, 3.0), at(128, 2.0)]}
        for model in ("dense", "moe")
        for name in ("default", "gmlake")
    ]
    runs[-1]["lengths"] = [at(64, 3.0)]
    drawn = pictures({"runs": runs})
    assert list(drawn) == ["frontier.svg", "frontier-dark.svg"]
    for picture in drawn.values():
        assert picture.count("<polyline") == picture.count("<path") == 4
        crosses = [line for line in picture.splitlines() if "<path" in line]
        at_right, at_left = (float(line.partition("M")[2].split()[0]) for line in crosses[2:])
        assert at_left < at_right


def test_a_picture_names_the_lengths_for_which_there_is_room(frontier: Any) -> None:
    assert frontier
    pictures = importlib.import_module("gpu.frontier_picture").pictures
    lengths = [at(longest, 3.0) for longest in (64, 128, 240, 250, 256)]
    drawn = pictures({"runs": [{"model": "dense", "allocator": "gmlake", "lengths": lengths}]})
    words = re.findall(r'y="250.0"[^>]*>([^<]*)<', drawn["frontier.svg"])
    assert words == ["64", "128", "256"]


def test_a_table_says_how_fast_each_is_at_a_length(frontier: Any) -> None:
    assert frontier
    speeds = importlib.import_module("tabled.frontier").speeds
    about = {"model": "dense", "device": "NVIDIA H100 80GB HBM3", "torch": "2.11.0"}
    run = {"command": "python x", "commit": "0123456", "date": "2026-01-01", "python": "3.12"}
    made = speeds(
        {
            "run": {**run, "processor": "x", "gpu": "NVIDIA H100"},
            "runs": [
                {**about, "allocator": "default", "lengths": [at(64, 99.0)]},
                {**about, "allocator": "gmlake", "lengths": [at(64, 100.0), at(128, 70.0)]},
                {**about, "allocator": "gmlake", "lengths": [at(64, 104.0), at(128, 80.0)]},
                {**about, "allocator": "async", "failed": "no memory"},
            ],
        }
    )
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in made.splitlines()[2:4]]
    driver = "2.5 (2.5 to 2.5)"
    assert rows == [
        ["64", "", "99 †", "", "102 (100 to 104)", driver],
        ["128", "", "", "", "75 (70 to 80)", driver],
    ]
    assert "two runs; † one run" in made


def test_a_table_says_where_each_ends(frontier: Any) -> None:
    assert frontier
    ends = importlib.import_module("tabled.frontier").ends
    about = {"model": "dense", "device": "NVIDIA H100 80GB HBM3", "torch": "2.11.0", "round": 0}
    run = {"command": "python x", "commit": "0123456", "date": "2026-01-01", "python": "3.12"}
    made = ends(
        {
            "run": {**run, "processor": "x", "gpu": "NVIDIA H100"},
            "runs": [
                {**about, "allocator": "default", "lengths": [at(64, 99.0)]},
                {**about, "allocator": "gmlake", "lengths": [at(64, 100.0), at(128, 70.0)]},
            ],
        }
    )
    rows = [line.split(" | ")[2:] for line in made.splitlines() if line.startswith("| a Llama")]
    assert rows == [
        ["PyTorch's default", "1", "64 †", "99 †", "0.990 † |"],
        ["gmlake", "1", "128 †", "70 †", "1.000 † |"],
    ]


def test_every_gpu_and_core_belongs_to_one_job_at_a_time(frontier: Any) -> None:
    places = frontier.slots(4, 2)
    assert [place.gpus for place in places] == [(0, 1), (2, 3)]
    busy: set[int] = set()
    lock = threading.Lock()

    def work(job: int, place: Any) -> int:
        with lock:
            assert not busy & set(place.gpus)
            busy.update(place.gpus)
        with lock:
            busy.difference_update(place.gpus)
        return 2 * job

    assert frontier.deal(range(20), places, work) == list(range(0, 40, 2))
