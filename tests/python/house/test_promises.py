"""Each promise of docs/reliability.md has a number and names tests that exist."""

from __future__ import annotations

import re

from places import ROOT
from sources import text_of

PAGE = (ROOT / "docs/reliability.md").read_text()
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
PROMISES = {int(number): tests for number, _, tests in ROW.findall(PAGE)}
NAMED = re.compile(r"`([a-z_0-9]+(?:\.py)?)`")
DEFINED = re.compile(r"^(?:TEST\(|def (?=test_))(\w+)", re.MULTILINE)
REFERENCE = re.compile(r"\bpromise (\d+)", re.IGNORECASE)


def known_tests() -> set[str]:
    """The names of all test files and of the tests in them."""
    files = [*ROOT.glob("tests/**/test_*.c"), *ROOT.glob("tests/**/test_*.py")]
    names = {path.stem if path.suffix == ".c" else path.name for path in files}
    for path in files:
        names.update(DEFINED.findall(text_of(path)))
    return names


def test_promises_are_numbered_without_a_gap() -> None:
    assert list(PROMISES) == list(range(1, len(PROMISES) + 1))


def broken(promises: dict[int, str], known: set[str]) -> dict[int, set[str]]:
    """The promises that name no test, or some that are not there."""
    named = {number: set(NAMED.findall(tests)) for number, tests in promises.items()}
    return {number: names - known for number, names in named.items() if not names or names - known}


def test_a_promise_names_tests_that_exist() -> None:
    assert broken(PROMISES, known_tests()) == {}
    assert broken({1: "`test_a`", 2: "`test_a`, `test_b`", 3: "-"}, {"test_a"}) == {
        2: {"test_b"},
        3: set(),
    }


def test_code_and_documents_refer_to_promises_that_exist() -> None:
    files = [
        *(path for folder in ("csrc", "src", "tests") for path in (ROOT / folder).rglob("*.*")),
        *(ROOT / "docs").glob("*.md"),
    ]
    texts = [path for path in files if path.suffix in {".c", ".h", ".cpp", ".py", ".md"}]
    assert len(texts) > 500
    referred = {
        int(number): path.name for path in texts for number in REFERENCE.findall(text_of(path))
    }
    assert referred
    assert {number: name for number, name in referred.items() if number not in PROMISES} == {}
