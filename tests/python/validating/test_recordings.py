"""The policies that model PyTorch against what PyTorch did on a real GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gmlake
from places import ROOT
from validating import load_notes, validate

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "benchmarks" / "recordings" / "h200"
RECORDINGS = sorted(FOLDER.glob("*/*.gmtrace"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_address_and_every_statistic(path: Path) -> None:
    trace = gmlake.load(path).devices[0].trace
    result = validate(trace, load_notes(path.with_suffix(".json")))
    assert result.is_complete, "\n".join(result.differences)
    assert result.policy == ("caching" if path.parent.name == "default" else "expandable")
    assert result.addresses_matched == result.allocations > 500
    assert result.statistics_matched == result.statistics > 500
    assert result.peak_reserved_bytes == result.recorded_peak_bytes > 0
