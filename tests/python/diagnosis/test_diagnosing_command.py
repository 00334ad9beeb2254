"""`gmlake diagnose`: tables, JSON, options and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from budgets import check_budget
from gmlake import TraceBuilder
from gmlake.commands import main

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def example() -> gmlake.ObjectTrace:
    builder = TraceBuilder("two arrays")
    used = builder.alloc(MIB, name="used", frames=("main  train.py:1",))
    unused = builder.alloc(MIB, name="unused", frames=("main  train.py:2",))
    builder.kernel("f", writes=(used,), frames=("main  train.py:3",))
    builder.free(used)
    builder.free(unused)
    return builder.build()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "two.gmobjects"
    example().save(path)
    return str(path)


@pytest.mark.parametrize("what", ["time", "memory"])
def test_reading_has_a_budget(
    file: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = "gmlake.diagnosis.object_trace._from_zip"
    check_budget(f"diagnose {file}", reader, what, monkeypatch, capsys)


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["diagnose", "--json", *words]) == code
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
    return results


def patterns(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    return [finding["pattern"] for finding in told(capsys, *words)[0]["findings"]]


def test_a_table_says_what_to_change(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", file]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "two arrays: 5 calls, 2 objects" in text
    assert "2.00 MiB at the peak; 1.00 MiB with the changes below, -50 %" in text
    assert "do not allocate `unused`" in text
    assert "also found: 1 early allocation" in text
    assert "allocate `used`" not in text


def test_all_shows_all(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", file, "--all"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "also found" in text
    assert "allocate `used` (train.py:1)" in text


def test_patterns_and_thresholds_are_options(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(patterns(capsys, file)) == ["early allocation", "unused allocation"]
    assert patterns(capsys, file, "--pattern", "unused-allocation") == ["unused allocation"]
    assert patterns(capsys, file, "--threshold", "early_apis=2") == ["unused allocation"]
    assert (
        told(capsys, file, "--threshold", "reuse_percent=2.5")[0]["options"]["reuse_percent"] == 2.5
    )
    assert len(told(capsys, file, "--threshold", "peak_count=1")[0]["peaks"]) == 1


# ---- pages, traces for Perfetto, and programs


def test_a_page_and_a_perfetto_trace_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page, slices = (tmp_path / name for name in ("x.gmobjects", "x.html", "x.json"))
    example().save(path)
    assert main(["diagnose", str(path), "-o", str(page), "--perfetto", str(slices)]) == 0
    assert "What wastes memory in" in page.read_text(encoding="utf-8")
    assert json.loads(slices.read_text(encoding="ascii"))["traceEvents"]
    assert main(["diagnose", str(path), str(path), "-o", str(page)]) == 0
    assert (tmp_path / "x-0.html").exists()
    assert (tmp_path / "x-1.html").exists()
    assert main(["diagnose", str(path), "-o", str(tmp_path / "no" / "x.html")]) == 1
    assert "cannot write" in capsys.readouterr().err
