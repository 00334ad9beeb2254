"""Rows of a matrix in files: as they come, a line each, or joined, a line for each folder.

python tests/matrix/rows.py [--kept] ROWS... > JOINED

Joins files of one tree: where two have the same change, what noticed it is what did in either.
--kept leaves out the tests that are there no more.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


def place_of(row: Row) -> tuple[str, int, str]:
    """Return what tells a change from others."""
    return row["file"], row["line"], row["after"]


def read(path: Path) -> tuple[dict[str, float | None], list[Row]]:
    """Return the seconds of each test, and rows whose "killed" has names."""
    head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    tests = head["tests"]
    names = list(tests)
    rows = [row for line in lines for row in line.get("rows", [line])]
    return tests, [{**row, "killed": [names[at] for at in row["killed"]]} for row in rows]


def join(paths: list[Path]) -> tuple[dict[str, float | None], list[Row]]:
    """Return what all of some files have."""
    tests: dict[str, float | None] = {}
    joined: dict[tuple[str, int, str], Row] = {}
    for path in paths:
        more, rows = read(path)
        tests |= more
        for row in rows:
            if known := joined.get(place_of(row)):
                known["killed"] = list(dict.fromkeys(known["killed"] + row["killed"]))
                known["reached"] += row["reached"]
                known["run"] += row["run"]
            else:
                joined[place_of(row)] = row
    return tests, list(joined.values())


def is_there(test: str) -> bool:
    """Return whether a test is still there, of C or of pytest."""
    *place, name = test.split("[", maxsplit=1)[0].split("::")
    if place and place[0].endswith(".py"):
        files = [ROOT / place[0]]
    else:
        program = (place or [name])[0].removeprefix("standin_")
        files = list((ROOT / "tests/c").rglob(f"{program}.c"))
    wanted = re.compile(rf"^\s*def {name}\(|^{name} = |TEST\({name}\)", re.MULTILINE)
    return any(path.exists() and (not place or wanted.search(path.read_text())) for path in files)


def main() -> int:
    """Print what the files have, joined."""
    is_kept = "--kept" in sys.argv
    tests, rows = join([Path(name) for name in sys.argv[1:] if name != "--kept"])
    if is_kept:
        tests = {test: took for test, took in tests.items() if is_there(test)}
        for row in rows:
            row["killed"] = [test for test in row["killed"] if test in tests]
    numbers = {test: number for number, test in enumerate(tests)}
    print(json.dumps({"tests": tests}))
    by_folder: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=place_of):
        row.pop("seconds", None)
        by_folder[row["file"].rpartition("/")[0]].append(
            {**row, "killed": sorted(numbers[test] for test in row["killed"])}
        )
    for group in by_folder.values():
        print(json.dumps({"rows": group}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
