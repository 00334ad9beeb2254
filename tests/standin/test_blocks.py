"""The Python in README and the documents runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.standin.places import ROOT
from tests.standin.running import run_program

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = "```python\n"
ELSEWHERE = {
    "interop.md": "test_interop.py runs it, where CuPy and Numba are",
    "streams.md": "its only block shows what is printed",
}
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if PYTHON in page.read_text(encoding="utf-8") and page.name not in ELSEWHERE
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    ran = []
    for which in ("", *(name for name in ("arena", "base") if f"{name}=" in text)):
        words = ("blocks", str(page), str(tmp_path), which)
        outcome = run_program(*words, settings=("--capacity", "80GiB"))
        assert outcome.code == 0, outcome.errors
        assert "GmlakeWarning" not in outcome.errors
        ran += outcome.results["ran"]
    assert len(ran) == text.count(PYTHON)
