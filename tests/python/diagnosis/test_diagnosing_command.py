"""`gmlake diagnose`: tables, JSON, options and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from budgets import check_budget
from gmlake.commands import main
from gmlake.diagnosis import ObjectTrace, TraceBuilder

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def example() -> ObjectTrace:
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


def test_patterns_are_an_option(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(patterns(capsys, file)) == ["early allocation", "unused allocation"]
    assert patterns(capsys, file, "--pattern", "unused-allocation") == ["unused allocation"]


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "x.gmobjects", tmp_path / "x.html"
    example().save(path)
    assert main(["diagnose", str(path), "-o", str(page)]) == 0
    assert "What wastes memory in" in page.read_text(encoding="utf-8")
    assert main(["diagnose", str(path), str(path), "-o", str(page)]) == 0
    assert (tmp_path / "x-0.html").exists()
    assert (tmp_path / "x-1.html").exists()
    assert main(["diagnose", str(path), "-o", str(tmp_path / "no" / "x.html")]) == 1
    assert "cannot write" in capsys.readouterr().err
