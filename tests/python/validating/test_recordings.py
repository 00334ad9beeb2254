"""The policies that model PyTorch against what PyTorch did on a real GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.snapshots.whole import of_one_trace
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "benchmarks" / "recordings" / "h200"
RECORDINGS = sorted(FOLDER.glob("*/*.gmtrace"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_address_and_every_statistic(path: Path) -> None:
    trace = gmlake.load(path).devices[0].trace
    notes = gmlake.load_notes(path.with_suffix(".json"))
    (result,) = gmlake.validate(of_one_trace(trace), notes).results
    assert result.is_complete, "\n".join(result.differences)
    assert result.policy == ("caching" if path.parent.name == "default" else "expandable")
    assert result.addresses_matched == result.allocations > 500
    assert result.statistics_matched == result.statistics > 500
    assert result.peak_reserved_bytes == result.recorded_peak_bytes > 0
