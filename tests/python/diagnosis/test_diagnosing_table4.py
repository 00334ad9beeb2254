"""The eight trace programs of the examples: patterns, savings and the check, against the paper."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gmlake import Diagnosis, ObjectTrace, find_inefficiencies
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "diagnosis" / "table4.py"
MIB = 1 << 20


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
TABLE_1 = {
    "huffman": 5,
    "dwt2d": 6,
    "pytorch": 5,
    "laghos": 6,
    "darknet": 7,
    "xsbench": 2,
    "minimdock": 5,
    "simplemulticopy": 4,
}
"""How many patterns the paper marks for each."""


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Any:
    return PROGRAMS[request.param]


@pytest.fixture
def found(program: Any) -> Diagnosis:
    return find_inefficiencies(program.trace()[0])


def named(name: str) -> Diagnosis:
    return find_inefficiencies(PROGRAMS[name].trace()[0])


def test_all_programs_of_the_table_are_there() -> None:
    assert {name: len(program.patterns) for name, program in PROGRAMS.items()} == TABLE_1


def test_the_patterns_are_those_of_table_1(program: Any, found: Diagnosis) -> None:
    assert {finding.pattern for finding in found.findings} == program.patterns


def test_the_objects_of_table_4_have_their_patterns(program: Any, found: Diagnosis) -> None:
    pairs = {(finding.pattern, finding.object_name) for finding in found.findings}
    assert set(program.fixes) <= pairs


def test_the_saving_foreseen_is_measured_and_the_papers(program: Any, found: Diagnosis) -> None:
    peak_bytes, twin_bytes = program.trace()[1], program.trace(fixed=True)[1]
    assert found.peak_bytes == peak_bytes
    foreseen = found.peak_with(program.fixed_findings(found))
    assert foreseen == pytest.approx(twin_bytes, rel=0.001)
    assert 100 * (1 - foreseen / peak_bytes) == pytest.approx(program.percent, abs=0.5)


def test_the_fixed_programs_have_no_more_of_it(program: Any) -> None:
    trace, twin_bytes = program.trace(fixed=True)
    twin = find_inefficiencies(trace)
    assert twin.peak_bytes == twin_bytes
    wasteful = {
        (finding.pattern, finding.object_name)
        for finding in twin.findings
        if finding.saving_bytes > twin_bytes / 1000 and finding.pattern != "temporary idleness"
    }
    assert not wasteful & set(program.fixes)


def test_every_fix_leaves_what_is_read(program: Any, found: Diagnosis) -> None:
    found.check()
    found.check(program.fixed_findings(found))
    for finding in found.findings:
        found.check([finding])
    for change in found.changes:
        found.check(change.group.numbers)


def test_each_finding_names_a_line_of_the_program(found: Diagnosis) -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    for finding in found.findings:
        name, _, number = finding.line.partition(":")
        assert name == "table4.py"
        assert "device." in lines[int(number) - 1] or "writes=" in lines[int(number) - 1]


def test_laghos_saves_18_percent_with_one_vector() -> None:
    found = named("laghos")
    one = [
        finding.number
        for finding in found.findings
        if (finding.pattern, finding.object_name) == ("late deallocation", "q_dx")
    ]
    assert found.peak_with(one) == 0.82 * found.peak_bytes


def test_minimdock_has_the_papers_figures() -> None:
    (finding,) = [one for one in named("minimdock").findings if one.pattern == "overallocation"]
    assert finding.object_name == "pMem_conformations"
    assert finding.percent == pytest.approx(2.4e-3, abs=0.05e-3)
    assert finding.fragmented_percent == pytest.approx(4.89e-3, abs=0.005e-3)
    assert finding.guidance.startswith("easy")


def test_xsbench_uses_five_percent() -> None:
    (finding,) = [one for one in named("xsbench").findings if one.pattern == "overallocation"]
    assert finding.percent == pytest.approx(5)
    assert finding.guidance.startswith("easy")


def test_simple_multi_copy_has_the_distances_of_figure_7() -> None:
    found = named("simplemulticopy")
    (early,) = [one for one in found.findings if one.pattern == "early allocation"]
    assert early.object_name == "d_data_out1"
    assert early.from_api is not None
    assert early.to_api is not None
    first, last = int(found.times[early.from_api.api]), int(found.times[early.to_api.api])
    between = [
        found.trace.label(api) for api, time in enumerate(found.times) if first < time < last
    ]
    assert between == ["alloc", "cudaMemset", "alloc"]
    (idle,) = [one for one in found.findings if one.pattern == "temporary idleness"]
    assert idle.object_name == "d_data_in1"
    assert len({int(row["stream"]) for row in found.trace.apis}) == 2


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
