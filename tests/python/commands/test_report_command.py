"""gmlake report: words, JSON and a page about the ranks of a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gmlake.commands import main
from gmlake.jobs.summary import RAISED, Refusal
from made_ranks import MIB, device, line, rank, write

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four ranks, the third holds more by one line and was refused; the last is missing."""
    common = [line(7, GIB)]
    usual = device([2 * GIB] * 20, [*common, line(41, GIB)])
    full = device([3 * GIB] * 20, [*common, line(41, 2 * GIB)], refused=2, limit_bytes=4 * GIB)
    refusal = Refusal(0, 19, 700 * MIB, 64 * MIB, 3 * GIB, 3400 * MIB, line(41, 0).frame)
    error = "OutOfMemoryError: CUDA out of memory. Tried to allocate 700.00 MiB"
    third = rank(2, 4, full, refusals=(refusal,), state=RAISED, error=error, host="<script>x")
    write(tmp_path / "job", rank(0, 4, usual), rank(1, 4, usual), third)
    return tmp_path / "job"


def test_json_has_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["schema"] == "gmlake.job/1"
    assert told["missing"] == [3]
    (refusal,) = told["refusals"]
    assert (refusal["rank"], refusal["step"], refusal["size_bytes"]) == (2, 19, 700 * MIB)
    assert refusal["line"] == "train.py:41 in layer41()"
    (difference,) = told["differences"]
    assert (difference["odd"], difference["odd_bytes"]) == (["rank 2"], 2 * GIB)
    assert [one["reserved_bytes"] for one in told["ranks"]] == [
        2 * GIB * 11 // 10,
        2 * GIB * 11 // 10,
        3 * GIB * 11 // 10,
    ]
    assert {one["name"] for one in told["spread"]} == {
        *("live", "reserved", "live / reserved", "in use on the device")
    }


def test_the_page_has_the_same_and_escapes_it(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    for part in ("train.py:41 in layer41()", "no file of rank 3", "700 MiB", "&lt;script&gt;x"):
        assert part in text
    assert "<script>x" not in text
    assert text.count("<section") == 4


def test_a_page_that_cannot_be_written_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder), "-o", str(folder / "none" / "page.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
