"""A figure that README names is in docs as well, where it is said what made it."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("docs/**/*.md"))
}
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)")
FIGURE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)\s+(GiB|MiB|GB|ms|µs|s|%)(?!\w)")


class Row(NamedTuple):
    """A row of a table. cells: what is in it, by the heading of its column."""

    label: str
    cells: dict[str, str]


def plain(cell: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell).replace("*", "").replace("`", "").strip()


def rows_of(text: str) -> Iterator[Row]:
    """Yield the rows of every table; one without a label has that of the row above it."""
    headings: list[str] = []
    label = ""
    for line in CODE.sub("", text).splitlines():
        if not line.startswith("|"):
            headings = []
            continue
        cells = [plain(cell) for cell in line.strip().strip("|").split("|")]
        if not headings:
            headings, label = grouped(cells), ""
        elif not set(line) <= set("|-: "):
            label = cells[0] or label
            yield Row(label, dict(zip(headings[1:], cells[1:], strict=False)))


def grouped(headings: list[str]) -> list[str]:
    """Put before each heading the group that an earlier one begins, as in "seconds: gmlake"."""
    group, found = "", []
    for heading in headings:
        begun, colon, _ = heading.partition(": ")
        group = begun if colon else group
        found.append(heading if colon or not group else f"{group}: {heading}")
    return found


def numbers(text: str) -> list[Decimal]:
    return [Decimal(found.replace(",", "")) for found in NUMBER.findall(text)]


def is_among(wanted: Decimal, those: list[Decimal]) -> bool:
    """Whether a number is one of those, as exactly as it is written."""
    exponent = wanted.as_tuple().exponent
    step = Decimal(1).scaleb(int(exponent))
    return any(abs(each - wanted) <= step / 2 for each in those)


def is_said_by(claim: Row, other: Row) -> bool:
    """Whether a row has the figures of another, in columns of the same headings."""
    return all(
        name in other.cells and is_among(figure, numbers(other.cells[name]))
        for name, text in claim.cells.items()
        if re.fullmatch(r"[\d.,]+", text)
        for figure in numbers(text)
    )


CLAIMS = [
    row
    for row in rows_of(README)
    if sum(bool(re.fullmatch(r"[\d.,]+", text)) for text in row.cells.values()) > 1
]
ROWS = [row for text in DOCS.values() for row in rows_of(text)]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.label)
def test_a_row_of_readme_is_a_row_of_docs(claim: Row) -> None:
    alike = [row for row in ROWS if row.label == claim.label]
    assert alike, "no table in docs has a row of this name"
    assert any(is_said_by(claim, row) for row in alike), [row.cells for row in alike]


def figures_of(text: str) -> dict[str, set[Decimal]]:
    """Return the figures of prose, by unit."""
    found: dict[str, set[Decimal]] = {}
    for number, unit in FIGURE.findall(text):
        found.setdefault(unit, set()).add(Decimal(number.replace(",", "")))
    return found


def test_a_figure_in_the_prose_of_readme_is_in_docs() -> None:
    prose = "\n".join(line for line in CODE.sub("", README).splitlines() if line[:1] != "|")
    there = figures_of("\n".join(DOCS.values()))
    said = figures_of(prose)
    assert said
    missing = {
        f"{figure} {unit}"
        for unit, figures in said.items()
        for figure in figures
        if not is_among(figure, sorted(there.get(unit, set())))
    }
    assert missing == set()


def test_what_is_compared() -> None:
    table = "| a | b | c |\n|---|---:|---:|\n| [x](y) | **1.25** | 7 s |\n| | 3 | 1,024 |\n"
    assert grouped(["p", "live", "GiB: a", "b", "s: a"]) == [
        "p",
        "live",
        "GiB: a",
        "GiB: b",
        "s: a",
    ]
    first, second = rows_of(table)
    assert (first.label, first.cells) == ("x", {"b": "1.25", "c": "7 s"})
    assert second == Row("x", {"b": "3", "c": "1,024"})
    assert is_said_by(Row("x", {"b": "1.3"}), first)
    assert not is_said_by(Row("x", {"b": "1.2"}), Row("x", {"b": "1.26 GiB, 2 s"}))
    assert is_said_by(Row("x", {"b": "2.0"}), Row("x", {"b": "1.26 GiB, 2.04 s"}))
    assert not is_said_by(Row("x", {"d": "1.3"}), first)
    assert figures_of("up to 12.5 % of 1,024 MiB") == {
        "%": {Decimal("12.5")},
        "MiB": {Decimal(1024)},
    }
