"""Committed results: which command makes each of them again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
WITHOUT_GPU = ROOT / "benchmarks" / "results.sh"
WITH_GPU = ROOT / "benchmarks" / "gpu" / "run.sh"
RECORDED = "recordings of workloads/record.py on a GPU and on the stand-in, which are not kept"
MEASURED_HOWTOS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "docs" / "howto").glob("*.md"))
    if "\n## On a GPU\n\nThe example" in path.read_text(encoding="utf-8")
]
ELSEWHERE = {
    "conv_workspaces_h100": "gpu/workspaces.py, on an H100",
    "device_overheads_h100": "gpu/run.sh forecasts, on an H100",
    "driver_costs_h100": "gpu/run.sh costs, on another GPU",
    "forecast_compiled_again_h100": "gpu/run.sh forecasts, the compiled programs, once compiled",
    "forecast_compiled_h100": "gpu/run.sh forecasts, the compiled programs alone, on an H100",
    "forecast_largest": "gpu/run.sh forecast_largest",
    "forecast_programs_h100": "gpu/run.sh forecasts, on an H100",
    "forecast_ranks": "gpu/run.sh forecast_ranks, on two GPUs",
    "overhead_h100": "gpu/run.sh overhead, on another GPU",
    "standin_vs_h200_default": RECORDED,
    "standin_vs_h200_expandable": RECORDED,
    "validation_h200": RECORDED,
    "validation_standin": RECORDED,
}


def runs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "command" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from runs(each)


def parts(script: Path) -> set[str]:
    cases = script.read_text(encoding="utf-8").partition("case $wanted in")[2]
    names = re.findall(r"^    ([\w |]+)\)", cases, re.MULTILINE)
    return {name for line in names for name in line.split(" | ")}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_says_what_made_it(path: Path) -> None:
    said = list(runs(json.loads(path.read_text(encoding="utf-8"))))
    assert said
    assert all(each["command"] for each in said)


def test_a_command_makes_every_result_again() -> None:
    kept = {path.stem for path in RESULTS}
    on_a_gpu = {name.removeprefix("gpu_") for name in kept - ELSEWHERE.keys()} & parts(WITH_GPU)
    left = kept - parts(WITHOUT_GPU) - {f"gpu_{name}" for name in on_a_gpu}
    assert left == {*ELSEWHERE, "driver_costs", "driver_waits"}
    assert "benchmarks/driver_costs.py" in WITH_GPU.read_text(encoding="utf-8")
    assert parts(WITHOUT_GPU) <= kept


def test_all_parts_run_unless_some_are_named() -> None:
    text = WITHOUT_GPU.read_text(encoding="utf-8")
    (words,) = re.findall(r'^ALL="([^"]*)"', text, re.MULTILINE)
    assert set(words.split()) == parts(WITHOUT_GPU)


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from numbers(each)


@pytest.mark.parametrize("document", ["README.md", "docs/helps.md", *MEASURED_HOWTOS])
def test_figures_of_gpus_are_those_of_a_result(document: str) -> None:
    files = [path for path in RESULTS if path.stem.startswith("gpu_")]
    known = [number for path in files for number in numbers(json.loads(path.read_text()))]
    rounded = {
        (digits, f"{number / unit:.{digits}f}")
        for digits in range(1, 5)
        for number in known
        for unit in (1, 1 << 30)
    }
    text = (ROOT / document).read_text(encoding="utf-8")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    shown = [cell for line in tables for cell in line.split("|")[2:]]
    found = [
        number for cell in shown for number in re.findall(r"(?<![\w.])\d+\.\d+(?! ?times)", cell)
    ]
    assert found
    missing = [each for each in found if (len(each.partition(".")[2]), each) not in rounded]
    assert not missing


def test_a_tree_with_changes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    script = shutil.copy(WITHOUT_GPU, tmp_path / "benchmarks" / "results.sh")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)  # noqa: S607
    done = subprocess.run([script, "speed"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "commit them first" in done.stderr
