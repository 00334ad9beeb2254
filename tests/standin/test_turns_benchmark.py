"""Steps of two allocators in turn, as benchmarks/gpu/turns.py measures them on GPUs.

Kernels do nothing here, so that times are the host's.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import run_benchmark
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARKS = ROOT / "benchmarks"
PAIRS = 3


def run(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Run it with tiny sizes; return what it printed, and what it wrote."""
    words = ("--tiny", "--pairs", str(PAIRS), "--output", "turns.json", *options)
    ended = run_benchmark("gpu.turns", folder, *words, settings=("--capacity", "4GiB"))
    output = folder / "turns.json"
    assert output.exists(), ended.output + ended.errors
    figures: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    assert not [told for told in figures["comparisons"] if "failed" in told], ended.errors
    return ended.output, figures


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return run(tmp_path_factory.mktemp("turns"), "--programs", "llama-1b", "convnet")


@pytest.mark.long
def test_every_comparison_has_its_pairs(ran: tuple[str, dict[str, Any]]) -> None:
    printed, figures = ran
    comparisons = figures["comparisons"]
    assert [(told["program"], told["side"], told["base"]) for told in comparisons] == [
        (program, side, "default")
        for program in ("llama-1b", "convnet")
        for side in ("gmlake", "expandable")
    ]
    for told in comparisons:
        sides = (told["side"], told["base"])
        assert told["pairs"] == told["wanted_pairs"] == PAIRS
        assert len(told["first"]) == PAIRS
        assert set(told["first"]) <= set(sides)
        for side in sides:
            taken = told["steps"][side]
            assert all(len(taken[name]) == PAIRS for name in ("wall", "launch", "device"))
            both = zip(taken["launch"], taken["wall"], strict=True)
            assert all(0 < launch <= wall for launch, wall in both)
        for ratio in told["ratios"].values():
            assert 0 < ratio["low"] <= ratio["ratio"] <= ratio["high"]
        assert f"{told['ratios']['wall']['ratio']:.3f}" in printed
    assert figures["run"]["command"].startswith("python benchmarks/gpu/turns.py --tiny")


@pytest.mark.long
def test_each_side_is_served_by_its_allocator_alone(ran: tuple[str, dict[str, Any]]) -> None:
    for told in ran[1]["comparisons"]:
        default = told["held"]["default"]
        assert default["bytes"] > 0
        assert default["expandable_bytes"] == default["gmlake_bytes"] == 0
        its = told["held"][told["side"]]
        assert its["expandable_bytes"] == its["bytes"] > 0  # gmlake's segments are expandable, too
        if told["side"] == "gmlake":
            assert 0.5 < its["gmlake_bytes"] / default["bytes"] < 1.1


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    ["llama-1b-checkpoint", "llama-3b-checkpoint", "lora", "moe", "generate", "launch-bound"],
)
def test_the_other_programs_run(program: str, tmp_path: Path) -> None:
    _, figures = run(tmp_path, "--programs", program, "--sides", "gmlake")
    assert figures["comparisons"][0]["pairs"] == PAIRS


@pytest.mark.long
def test_what_takes_too_long_ends_with_fewer_pairs(tmp_path: Path) -> None:
    options = ("--programs", "convnet", "--sides", "again", "--seconds", "0.1", "--pairs", "50")
    printed, figures = run(tmp_path, *options)
    (told,) = figures["comparisons"]
    assert told["pairs"] == 1
    assert told["kernels"] == {"again": [], "default": []}
    assert "convnet, again/default: 1 of 50 pairs" in printed


@pytest.mark.long
def test_what_was_measured_apart_is_joined(ran: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, told in zip(files, ran[1]["comparisons"], strict=False):
        figures = {"run": {"command": file.name}, "comparisons": [told]}
        file.write_text(json.dumps(figures), encoding="utf-8")
    output = tmp_path / "both.json"
    command = [sys.executable, "-m", "gpu.turns", "--join", *map(str, files), "--output"]
    variables = os.environ | {"PYTHONPATH": str(BENCHMARKS)}
    subprocess.run([*command, str(output)], env=variables, check=False)
    every = json.loads(output.read_text(encoding="utf-8"))["comparisons"]
    assert [told["run"]["command"] for told in every] == ["a.json", "b.json"]
    assert [told["side"] for told in every] == ["gmlake", "expandable"]


# ---- made-up figures -----------------------------------------------------------------------------


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu.turns")


def test_ratios_are_those_of_each_pair(turns: Any) -> None:
    told = turns.compared_pairs([1.0, 4.0, 90.0], [2.0, 4.0, 30.0])
    assert told == {"ratio": 1.0, "low": 0.5, "high": 3.0}
    with pytest.raises(ValueError, match="zip"):
        turns.compared_pairs([1.0], [1.0, 2.0])


@pytest.mark.parametrize("ours_first", [50, 20])
def test_what_the_order_does_is_not_in_the_ratio(turns: Any, ours_first: int) -> None:
    is_first = [number < ours_first for number in range(100)]
    mine = [0.97 * (1.5 if first else 1.0) for first in is_first]
    base = [1.0 if first else 1.5 for first in is_first]
    told = turns.compared_turns(mine, base, is_first)
    assert [round(told[name], 6) for name in ("low", "ratio", "high")] == [0.97] * 3


def test_one_order_alone_is_its_median(turns: Any) -> None:
    told = turns.compared_turns([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [True] * 3)
    assert (told["low"], told["ratio"], told["high"]) == pytest.approx((1.0, 2.0, 3.0))


def test_the_interval_narrows_with_the_pairs(turns: Any) -> None:
    widths = []
    for count in (25, 400):
        mine = [100 + number % 5 for number in range(count)]
        told = turns.compared_pairs(mine, [100.0] * count)
        assert told["low"] <= told["ratio"] == 1.02 <= told["high"]
        widths.append(told["high"] - told["low"])
    assert widths[1] < widths[0]


def test_a_summary_tells_the_order_from_the_sides(turns: Any) -> None:
    # The second step of a pair takes half of the first; of the sides each takes as long.
    wall = {"gmlake": [200, 100] * 50, "default": [100, 200] * 50}
    told = {
        "first": ["gmlake", "default"] * 50,
        "steps": {side: dict.fromkeys(("wall", "launch", "device"), wall[side]) for side in wall},
        "kernels": {"gmlake": [30, 33], "default": [30, 30]},
        "driver": {side: {"ns": [3_000_000, 0], "calls": [3, 0]} for side in wall},
    }
    found = turns.summary("gmlake", "default", told)
    assert found["ratios"]["first"] == {"ratio": 2.0, "low": 2.0, "high": 2.0}
    assert found["ratios"]["kernels"]["ratio"] == pytest.approx(1.05)
    assert found["driver_per_step"]["gmlake"] == {"ms": 1.5, "calls": 1.5}
    without = told | {"kernels": {"gmlake": [], "default": []}}
    assert "kernels" not in turns.summary("gmlake", "default", without)["ratios"]


def test_every_program_that_takes_turns_has_a_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    named, made = (importlib.import_module(f"gpu.{name}") for name in ("settings", "taking_turns"))
    assert list(named.TURNS) == list(made.MAKERS)
