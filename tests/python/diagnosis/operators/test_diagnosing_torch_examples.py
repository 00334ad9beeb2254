"""The programs of PolyBench and the GPT, their patterns and what mending them saves."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from places import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

sys.path.insert(0, str(ROOT))
from examples.diagnosis import gpt  # noqa: E402
from examples.diagnosis.polybench import running  # noqa: E402

# Table 1 of the paper counts patterns; table 4 names those that were mended.
BOTH_ENDS = {"early allocation", "late deallocation"}
PATTERNS = {
    "two_mm": BOTH_ENDS | {"redundant allocation"},
    "three_mm": BOTH_ENDS | {"redundant allocation", "temporary idleness"},
    "gram_schmidt": BOTH_ENDS
    | {"temporary idleness", "structured access", "non-uniform access frequency"},
    "bicg": BOTH_ENDS | {"temporary idleness", "non-uniform access frequency"},
}
SAVED_PERCENT = {"two_mm": 40, "three_mm": 57, "gram_schmidt": 33}


@pytest.fixture(scope="module", params=PATTERNS)
def program(request: pytest.FixtureRequest) -> Any:
    """Name, program, its run, and that of its twin."""
    module = importlib.import_module(f"examples.diagnosis.polybench.{request.param}")
    found = module.PROGRAM
    wasteful = running.run(found, found.size, "cpu")
    return request.param, wasteful, running.run(found, found.size, "cpu", is_fixed=True)


def test_the_patterns_are_those_of_the_paper(program: Any) -> None:
    name, wasteful, _ = program
    assert wasteful.patterns == PATTERNS[name]


def test_the_twin_computes_the_same(program: Any) -> None:
    _, wasteful, fixed = program
    assert fixed.result == pytest.approx(wasteful.result, rel=1e-5)


def test_the_twin_saves_what_the_paper_says(program: Any) -> None:
    name, wasteful, fixed = program
    if name not in SAVED_PERCENT:
        assert fixed.diagnosis.peak_bytes < wasteful.diagnosis.peak_bytes
        return
    saved = 100 * (1 - fixed.diagnosis.peak_bytes / wasteful.diagnosis.peak_bytes)
    assert saved == pytest.approx(SAVED_PERCENT[name], abs=3)


def test_the_report_predicts_it(program: Any) -> None:
    name, wasteful, fixed = program
    if name in SAVED_PERCENT:
        diagnosis = wasteful.diagnosis
        predicted = diagnosis.peak_bytes - diagnosis.fixed_peak_bytes
        measured = diagnosis.peak_bytes - fixed.diagnosis.peak_bytes
        assert predicted == pytest.approx(measured, rel=0.02)


def test_every_finding_can_be_fixed(program: Any) -> None:
    _, wasteful, _ = program
    wasteful.diagnosis.check()


def found_in(run: Any, pattern: str) -> dict[str, Any]:
    return {
        found.object_name: found for found in run.diagnosis.findings if found.pattern == pattern
    }


def test_rows_of_gram_schmidt_are_used_less_and_less() -> None:
    from examples.diagnosis.polybench.gram_schmidt import PROGRAM

    run = running.run(PROGRAM, 64, "cpu")
    slices = found_in(run, "structured access")["r"]
    assert slices.pieces == 64
    assert found_in(run, "non-uniform access frequency")["r"].percent == pytest.approx(58, abs=2)


def test_sums_of_bicg_are_added_to_unevenly() -> None:
    from examples.diagnosis.polybench.bicg import PROGRAM

    run = running.run(PROGRAM, 64, "cpu")
    assert {"q", "s"} <= set(found_in(run, "non-uniform access frequency"))
    mended = running.run(PROGRAM, 64, "cpu", is_fixed=True)
    assert not {"q", "s"} & set(found_in(mended, "non-uniform access frequency"))


@pytest.mark.parametrize("batch", [1, pytest.param(4, marks=pytest.mark.long)])
def test_what_a_step_of_a_gpt_would_save_is_what_it_saves(batch: int) -> None:
    before, after = gpt.diagnosed(gpt.SMALL, torch.device("cpu"), batch, 128)
    found = gpt.square_roots(before.diagnosis)
    measured = before.diagnosis.peak_bytes - after.diagnosis.peak_bytes
    assert measured > 0.1 * before.diagnosis.peak_bytes
    assert found.saving_bytes == pytest.approx(measured, rel=0.02)
    before.diagnosis.check()


def test_the_programs_print_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.diagnosis.polybench.two_mm import PROGRAM

    assert running.main(PROGRAM, ["--device", "cpu", "--size", "16"]) == 0
    said = capsys.readouterr().out
    assert "5.00 KiB at the peak; 3.00 KiB with the changes below, -40 %" in said
    assert "allocate `d` later, right before its first use" in " ".join(said.split())
    assert running.main(PROGRAM, ["--device", "cpu", "--size", "16", "--fixed"]) == 0
    assert "3.00 KiB" in capsys.readouterr().out
