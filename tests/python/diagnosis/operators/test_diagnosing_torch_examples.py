"""The programs of PolyBench and the GPT, their patterns and what mending them saves."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import sys

import pytest

from places import ROOT
from proving import prove

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

sys.path.insert(0, str(ROOT))
from examples.diagnosis import gpt  # noqa: E402


@pytest.mark.parametrize("batch", [1, pytest.param(4, marks=pytest.mark.long)])
def test_what_a_step_of_a_gpt_would_save_is_what_it_saves(batch: int) -> None:
    before, after = gpt.diagnosed(gpt.SMALL, torch.device("cpu"), batch, 128)
    found = gpt.square_roots(before.diagnosis)
    measured = before.diagnosis.peak_bytes - after.diagnosis.peak_bytes
    assert measured > 0.1 * before.diagnosis.peak_bytes
    assert found.saving_bytes == pytest.approx(measured, rel=0.02)
    prove(before.diagnosis)
