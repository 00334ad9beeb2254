"""Rows of a matrix in files: as they come, a line each, or joined, a line for each folder.

python tests/matrix/rows.py ROWS... > JOINED

Joins files of one tree: where two have the same change, what noticed it is what did in either.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

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
                known["run"] = known.get("run", 0) + row.get("run", 0)
            else:
                joined[place_of(row)] = row
    return tests, list(joined.values())


def main() -> int:
    """Print what the files have, joined."""
    tests, rows = join([Path(name) for name in sys.argv[1:]])
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
