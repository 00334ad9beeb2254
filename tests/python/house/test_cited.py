"""A figure of a document that names its result is in that result.

Tables that are made from results are left to test_tables.py.
"""

from __future__ import annotations

import json
import re
import statistics
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RESULTS = {path.stem: path for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"))}
MADE = re.compile(r"^<!-- from .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FIGURE = r"(?<![\w.,])(\d[\d,]*\.\d+)(?![\w.]*\d)"
UNIT = r"(?<![\w'])(GiB|MiB|GB|%|ms|µs|us|ns|s)(?!\w)"
NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)"
SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 10**9}
DIVISORS: dict[str, tuple[float, ...]] = {
    **{unit: (1, size) for unit, size in SIZES.items()},
    "%": (1, 1e-2),
    "ms": (1, 1e6, 1e3, 1e-3),
    "µs": (1, 1e3, 1e-6),
    "us": (1, 1e3, 1e-6),
    "ns": (1,),
    "s": (1, 1e9),
    "": (1, 1 << 30, 1 << 20, 1e-2, 1e3, 1e6, 1e-3),
}
"""What a figure of that unit may be as a multiple of; results have bytes, seconds and ns."""
LONG_LIST = 8


class Figure(NamedTuple):
    """A figure of a document, with the results that it may be from."""

    text: str
    unit: str
    cited: frozenset[str]


def numbers(value: Any) -> Iterator[float]:
    """Yield the numbers of a result; of a list of many, what documents tell of such."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, str):
        yield from (float(found.replace(",", "")) for found in re.findall(NUMBER, value))
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif isinstance(value, list):
        plain = [each for each in value if isinstance(each, (int, float))]
        if len(plain) == len(value) > LONG_LIST:
            yield from (plain[0], min(plain), statistics.median(plain), max(plain), sum(plain))
            return
        for each in value:
            yield from numbers(each)


def rounded(value: float, digits: int) -> set[str]:
    """Return a number as it is written; a half may go either way."""
    return {f"{abs(value) * by:.{digits}f}" for by in (1 - 1e-9, 1 + 1e-9)}


@cache
def known(result: str, unit: str, digits: int) -> frozenset[str]:
    """Return the figures of a result as documents write them."""
    found = set(numbers(json.loads(RESULTS[result].read_text(encoding="utf-8"))))
    written = (rounded(each / by, digits) for each in found for by in DIVISORS[unit])
    return frozenset().union(*written)


def is_known(figure: Figure) -> bool:
    text = figure.text.replace(",", "")
    digits = len(text.partition(".")[2])
    return any(text in known(result, figure.unit, digits) for result in figure.cited)


def cited(text: str) -> frozenset[str]:
    return frozenset(name for name in re.findall(r"(\w+)\.json\b", text) if name in RESULTS)


def cells_of(table: str) -> Iterator[tuple[str, str]]:
    """Yield the figures of a table with their units: of the cell, its column, or its row."""
    rows = [line.strip().strip("|").split("|") for line in table.strip().splitlines()]
    for row in rows[2:]:
        for heading, cell in list(zip(rows[0], row, strict=False))[1:]:
            units = [re.findall(UNIT, text) for text in (cell, heading, row[0])]
            unit = next((found[-1] for found in units if found), "")
            yield from ((text, unit) for text in re.findall(FIGURE, cell))


def figures_of(document: str) -> Iterator[Figure]:
    """Yield the figures of paragraphs that name a result, and of the tables next to one."""
    for section in re.split(r"^(?=#)", CODE.sub("", MADE.sub("", document)), flags=re.MULTILINE):
        blocks = re.split(r"\n\n", section)
        for place, block in enumerate(blocks):
            if not block.lstrip().startswith("|"):
                for text, unit in re.findall(rf"{FIGURE}\s+{UNIT}", block):
                    if cited(block):
                        yield Figure(text, unit, cited(section))
                continue
            beside = [cited(each) for each in [*blocks[place::-1], *blocks[place + 1 :]]]
            results = next((each for each in beside if each), frozenset())
            if results:
                yield from (Figure(text, unit, results) for text, unit in cells_of(block))


DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): figures
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if (figures := list(figures_of(path.read_text(encoding="utf-8"))))
}


def unknown(figures: Iterable[Figure]) -> list[str]:
    return [
        f"{figure.text} {figure.unit} is not in {', '.join(sorted(figure.cited))}"
        for figure in figures
        if not is_known(figure)
    ]


def test_a_figure_is_in_the_result_that_is_named() -> None:
    missing = {
        document: wrong for document, figures in DOCUMENTS.items() if (wrong := unknown(figures))
    }
    assert missing == {}


def test_a_figure_that_no_result_has_is_found() -> None:
    figure = Figure("123456789.25", "s", frozenset({"speed"}))
    assert unknown([figure]) == ["123456789.25 s is not in speed"]


def test_figures_are_found() -> None:
    assert len(DOCUMENTS["docs/benchmarks.md"]) > 10


def texts(figures: Iterable[Figure]) -> list[tuple[str, str]]:
    return [(figure.text, figure.unit) for figure in figures]


def test_what_is_compared() -> None:
    named = "Took 1.25 GiB in 3.0 ms and 2 s (`results/speed.json`)."
    table = "| a | b, GiB | c |\n|---|---|---|\n| x | 1.5 | 7.25 s |\n| y, % | 2.5 | 3.5 |"
    found = list(figures_of(f"# One\n\n{named}\n\n{table}\n\n# Two\n\n{table}\n\n1.75 GiB\n"))
    assert texts(found) == [
        *(("1.25", "GiB"), ("3.0", "ms")),
        *(("1.5", "GiB"), ("7.25", "s"), ("2.5", "GiB"), ("3.5", "%")),
    ]
    assert all(figure.cited == {"speed"} for figure in found)
    assert texts(figures_of("<!-- from speed: x -->\n1.25 GiB speed.json\n<!-- end -->")) == []


def test_what_a_result_has() -> None:
    told = {"a": 1 << 30, "b": [float(each) for each in range(10)], "c": [0.5, True], "d": "7.25 s"}
    assert set(numbers(told)) == {1 << 30, 0.0, 4.5, 9.0, 45.0, 0.5, 7.25}
