"""Tables of documents that results make: compared with the results, or written from them.

    python benchmarks/tables.py [--write] [DOCUMENT ...]

What stands between `<!-- from RESULT: TABLE -->` and `<!-- end -->` is what the function of that
table in `tabled` says of benchmarks/results/RESULT.json. Without --write, nothing changes; the exit
status is 1 where a document says something else.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tabled import SOURCE, TABLES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(
    r"(?P<begin>^<!-- from (?P<result>\w+): (?P<table>\w+) -->\n).*?(?P<end>^<!-- end -->$)",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"^\s*<!-- (?:from .*|end) -->\s*$", re.MULTILINE)


def documents() -> list[Path]:
    """Return the documents that have a place for a table."""
    every = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [path for path in every if MARK.search(path.read_text(encoding="utf-8"))]


@cache
def result_of(name: str) -> dict[str, Any]:
    """Return a committed result."""
    told: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return told


def rendered(result: str, table: str, folder: Path) -> str:
    """Return a table for a document in that folder."""
    if (result, table) not in TABLES:
        known = ", ".join(f"{one}: {other}" for one, other in TABLES)
        raise ValueError(f"no table is called '{result}: {table}'; there are {known}")
    text = TABLES[result, table](result_of(result))
    path = os.path.relpath(RESULTS / f"{result}.json", folder)
    return text.replace(SOURCE, f"[{result}.json]({path})")


def written(text: str, folder: Path) -> str:
    """Return a document with each of its tables as its result has it."""
    made, places = PLACE.subn(
        lambda found: (
            f"{found['begin']}\n{rendered(found['result'], found['table'], folder)}\n\n"
            f"{found['end']}"
        ),
        text,
    )
    if 2 * places != len(MARK.findall(text)):
        raise ValueError("a table begins and does not end, or ends and does not begin")
    return made


def main() -> int:
    """Compare or write; 1 where documents differ from results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("documents", nargs="*", type=Path, metavar="DOCUMENT", help="all, unless")
    parser.add_argument("--write", action="store_true", help="write them from the results")
    options = parser.parse_args()
    status = 0
    for path in options.documents or documents():
        said = path.read_text(encoding="utf-8")
        try:
            told = written(said, path.resolve().parent)
        except (ValueError, OSError) as error:
            sys.stderr.write(f"{path}: {error}\n")
            return 2
        if told == said:
            continue
        if options.write:
            path.write_text(told, encoding="utf-8")
            print(path)
            continue
        lines = difflib.unified_diff(
            said.splitlines(), told.splitlines(), str(path), "its results", lineterm="", n=0
        )
        print(*lines, sep="\n")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
