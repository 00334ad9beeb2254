"""The eight trace programs of the examples: patterns, savings and the check, against the paper."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gmlake import find_inefficiencies
from gmlake.diagnosis import Diagnosis, ObjectTrace
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "diagnosis" / "table4.py"


def load() -> Any:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("table4", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PROGRAMS = {program.name: program for program in load().PROGRAMS}
"""How many patterns the paper marks for each."""


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Any:
    return PROGRAMS[request.param]


@pytest.fixture
def found(program: Any) -> Diagnosis:
    return find_inefficiencies(program.trace()[0])


def named(name: str) -> Diagnosis:
    return find_inefficiencies(PROGRAMS[name].trace()[0])


def test_the_patterns_are_those_of_table_1(program: Any, found: Diagnosis) -> None:
    assert {finding.pattern for finding in found.findings} == program.patterns


def test_the_saving_foreseen_is_measured_and_the_papers(program: Any, found: Diagnosis) -> None:
    peak_bytes, twin_bytes = program.trace()[1], program.trace(fixed=True)[1]
    assert found.peak_bytes == peak_bytes
    foreseen = found.peak_with(program.fixed_findings(found))
    assert foreseen == pytest.approx(twin_bytes, rel=0.001)
    assert 100 * (1 - foreseen / peak_bytes) == pytest.approx(program.percent, abs=0.5)


def test_darknets_layers_are_one_line(program: Any) -> None:
    del program
    text = str(named("darknet"))
    assert "10 times, as: do not allocate" in " ".join(text.split())


def test_the_example_runs_as_a_program(tmp_path: Path) -> None:
    path = tmp_path / "darknet.gmobjects"
    for words in (["darknet", "--all"], ["darknet", "-o", str(path)]):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert ObjectTrace.load(path).name == "darknet"
    wrong = subprocess.run([sys.executable, str(EXAMPLE), "x"], capture_output=True, check=False)
    assert wrong.returncode == 2
