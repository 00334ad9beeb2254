"""Tables that results make: documents have them as they are made, and each says what made it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = ROOT / "benchmarks" / "tables.py"
AWAITED: set[tuple[str, str]] = set()
"""Tables of results that are not there yet."""


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def places() -> Iterator[tuple[str, str]]:
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        yield from re.findall(r"<!-- from (\w+): (\w+) -->", path.read_text(encoding="utf-8"))


def test_documents_have_what_results_say() -> None:
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_table_is_in_a_document_or_awaited() -> None:
    from tabled import TABLES

    there = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    assert set(places()) == {each for each in TABLES if each not in AWAITED}
    assert {result for result, _ in AWAITED}.isdisjoint(there), "it has come: show it"


SAID = (
    r"`python [^`]+`; commit [^;]+; 20\d\d-\d\d-\d\d; [^;]+; (PyTorch [^;]+, )?Python [\d.]+"
    r"(; [^;†]+(; † one run)?|; † one run)\."
)
"""Command, commit, date, processor or GPU, versions, and on how many runs it rests."""


def wrong_with_table(table: str, result: str) -> list[str]:
    rows, _, captions = table.partition("\n\n")
    source = re.escape(f"[{result}.json](benchmarks/results/{result}.json)")
    odd = [line for line in rows.splitlines() if not line.startswith("|")]
    lines = captions.split("<br>\n")
    odd += [line for line in lines if not re.fullmatch(rf"<sub>{source}: {SAID}</sub>", line)]
    return odd + ["† is not explained"] * (("†" in rows) != ("† one run" in captions))


def test_tables_say_what_made_them() -> None:
    from tables import rendered

    found = {
        f"{result}: {name}": wrong
        for result, name in sorted(set(places()))
        if (wrong := wrong_with_table(rendered(result, name, ROOT), result))
    }
    assert found == {}


def test_a_table_that_does_not_say_what_made_it_is_found() -> None:
    said = "`python a.py`; commit 0123456; 2026-11-27; a GPU; Python 3.12.3; two runs"
    source = "[x.json](benchmarks/results/x.json)"
    assert wrong_with_table(f"| a |\n\n<sub>{source}: {said}.</sub>", "x") == []
    assert wrong_with_table(f"| † |\n\n<sub>{source}: {said}.</sub>", "x") == ["† is not explained"]
    assert wrong_with_table(f"a\n\n<sub>{said}.</sub>", "x") == ["a", f"<sub>{said}.</sub>"]


def test_a_result_that_there_is_not_cannot_be_made_again() -> None:
    command = [sys.executable, str(PROGRAM.with_name("result.py")), "gone"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
