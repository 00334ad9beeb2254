"""The policies that model PyTorch against what PyTorch did on a real GPU."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

import gmlake
from places import ROOT
from validating import load_notes, validate

ARCHIVE = ROOT / "benchmarks" / "recordings" / "h200.zip"
RECORDINGS = [name for name in ZipFile(ARCHIVE).namelist() if name.endswith(".gmtrace")]


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_address_and_every_statistic(name: str, tmp_path: Path) -> None:
    notes = str(PurePosixPath(name).with_suffix(".json"))
    with ZipFile(ARCHIVE) as archive:
        trace = gmlake.load(archive.extract(name, tmp_path)).devices[0].trace
        result = validate(trace, load_notes(Path(archive.extract(notes, tmp_path))))
    assert result.is_complete, "\n".join(result.differences)
    assert result.policy == ("caching" if name.startswith("default") else "expandable")
    assert result.addresses_matched == result.allocations > 500
    assert result.statistics_matched == result.statistics > 500
    assert result.peak_reserved_bytes == result.recorded_peak_bytes > 0
