"""gmlake view: files in, one page out, and nothing lost by it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gmlake.commands import main
from recording import pairs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pairs().save("run.gmtrace")
    return tmp_path


def titles(page: Path) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"))


def test_policies_are_added_on_demand(folder: Path) -> None:
    assert main(["view", "run.gmtrace", "--replay", "caching,stitch"]) == 0
    assert titles(folder / "run.html")[-1] == "policies side by side, on the same requests"


@pytest.mark.slow
def test_a_million_events_make_a_small_page(folder: Path) -> None:
    pairs(500_000).save("long.gmtrace")
    assert main(["view", "long.gmtrace"]) == 0
    page = folder / "long.html"
    assert page.stat().st_size < 10_000_000
    assert "1,000,000 events: each stretch of 1,000 is drawn as" in page.read_text(encoding="utf-8")
