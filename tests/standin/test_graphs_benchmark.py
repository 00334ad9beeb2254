"""The benchmark of CUDA graphs: what it holds, and what it makes of answers that differ.

Replays do nothing here, so that the tokens of a run are equal whatever happens; how differences are
told is tested with made-up figures.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from tests.standin.places import ROOT

import gmlake

BENCHMARKS = ROOT / "benchmarks"
HAS_COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))
HAS_HEADERS = Path(sysconfig.get_path("include"), "Python.h").exists()
WAYS = {"default", "expandable", "gmlake"} | (
    {"turns"} if hasattr(gmlake, "graphs_take_turns") else set()
)


def measure(folder: Path, *options: str) -> dict[str, Any]:
    """Run it on tiny sizes; return what it wrote."""
    output = folder / "graphs.json"
    paths = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gpu.graphs", "--size", "tiny", "--output", str(output)),
            *options,
        ],
        env=os.environ | {"PYTHONPATH": paths, "TORCHINDUCTOR_COMPILE_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("turns: skipped" in done.stdout) == ("turns" not in WAYS)
    figures: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return figures


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Capture and replay the graphs of the decode server every way."""
    folder = tmp_path_factory.mktemp("graphs")
    parts = ("--parts", "decode", "replays", "--trials", "20")
    return measure(folder, *parts, "--pools", "one-ascending", "own")


@pytest.mark.long
def test_every_way_decodes_the_same(figures: dict[str, Any]) -> None:
    assert figures["agreement"] == dict.fromkeys(
        ("has_ended", "has_same_tokens", "has_one_model"), True
    )
    assert figures["run"]["command"].startswith("python benchmarks/gpu/graphs.py --size tiny")
    assert figures["run"]["gpu"] == "gmlake stand-in GPU"
    for ways in figures["decode"].values():
        assert set(ways) == WAYS
        for told in ways.values():
            assert told["model_bytes"] < told["reserved_bytes"] <= told["device_bytes"]
            assert 0 < told["added_reserved_bytes"] <= told["added_device_bytes"]


@pytest.mark.long
def test_pools_decide_what_graphs_hold(figures: dict[str, Any]) -> None:
    added = {
        pools: {way: told["added_reserved_bytes"] for way, told in ways.items()}
        for pools, ways in figures["decode"].items()
    }
    one, own = added["one-ascending"], added["own"]
    for way in ("expandable", "gmlake"):
        assert own[way] > 4 * one[way]
    # PyTorch's allocator cannot serve a request from two segments of smaller graphs.
    assert one["default"] > 4 * one["gmlake"]
    if "turns" in WAYS:
        assert own["turns"] < 1.2 * one["gmlake"]


@pytest.mark.long
def test_replays_are_timed_beside_each_other(figures: dict[str, Any]) -> None:
    assert set(figures["replays"]) == {"default", "expandable"}
    for base, told in figures["replays"].items():
        assert list(told["batches"]) == ["1", "32", "128", "232"]
        assert set(told["tokens"]) == (WAYS - {"default", "expandable"}) | {base, "again"}
        for ways in told["batches"].values():
            assert set(ways) == set(told["tokens"])
            for its in ways.values():
                assert its["seconds"] > 0
                assert its["low"] <= its["ratio"] <= its["high"]


@pytest.mark.long
@pytest.mark.skipif(
    not (HAS_COMPILER and HAS_HEADERS),
    reason="Triton builds its launcher with a C compiler and the headers of Python",
)
def test_compiled_graphs_are_as_many(tmp_path: Path) -> None:
    ways = ("--ways", "default", "gmlake", "turns")
    told = measure(tmp_path, "--parts", "reduce-overhead", *ways)
    assert told["agreement"] == dict.fromkeys(
        ("has_ended", "has_same_answers", "has_same_graphs"), True
    )
    compiled = told["reduce-overhead"]
    assert set(compiled) == {"default", "gmlake"}
    assert {its["graphs"] for its in compiled.values()} == {5}
    for its in compiled.values():
        assert 0 < its["reserved_bytes"] <= its["peak_reserved_bytes"]


# ---- made-up figures -----------------------------------------------------------------------------

SOUND: dict[str, Any] = {
    "decode": {"own": {"default": {"tokens": "a"}, "gmlake": {"tokens": "a"}}},
    "replays": {"default": {"tokens": {"default": "a", "turns": "a"}, "has_one_model": True}},
    "reduce-overhead": {
        "default": {"answers": "b", "graphs": 5},
        "gmlake": {"answers": "b", "graphs": 5},
    },
}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu.graphs")


def test_what_agrees_is_told_of_the_parts_that_ran(graphs: Any) -> None:
    every = graphs.agreement(SOUND)
    assert len(every) == 5
    assert all(every.values())
    nothing: dict[str, Any] = {part: {} for part in SOUND}
    assert graphs.agreement(nothing) == {"has_ended": True}
    skipped = {"default": {"skipped": "no compiler"}}
    assert graphs.agreement(nothing | {"reduce-overhead": skipped}) == {"has_ended": True}


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        (("decode", "own", "gmlake", "tokens"), "c", "has_same_tokens"),
        (("replays", "default", "tokens", "turns"), "c", "has_same_tokens"),
        (("replays", "default", "has_one_model"), False, "has_one_model"),
        (("reduce-overhead", "gmlake", "answers"), "c", "has_same_answers"),
        (("reduce-overhead", "gmlake", "graphs"), 4, "has_same_graphs"),
        (("decode", "own", "gmlake", "failed"), "exit code 1", "has_ended"),
    ],
)
def test_one_that_differs_is_told(
    graphs: Any, path: tuple[str, ...], value: object, name: str
) -> None:
    figures = copy.deepcopy(SOUND)
    *parents, last = path
    holder = figures
    for parent in parents:
        holder = holder[parent]
    holder[last] = value
    assert [key for key, holds in graphs.agreement(figures).items() if not holds] == [name]


def test_the_interval_holds_the_median(graphs: Any) -> None:
    drawn = random.Random(0)  # noqa: S311 (chance that is the same each time)
    ratios = [drawn.gauss(1.03, 0.02) for _ in range(200)]
    told = graphs.compared(ratios)
    assert told["ratio"] == pytest.approx(statistics.median(ratios))
    # A median of so many draws of a normal distribution errs by 0.0018.
    assert 0.002 < told["ratio"] - told["low"] < 0.006
    assert 0.002 < told["high"] - told["ratio"] < 0.006
    assert graphs.compared(ratios) == told  # the same each time
