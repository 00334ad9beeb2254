"""Which tests are enough to notice every change that the rows of a matrix say any test noticed.

python tests/matrix/cover.py ROWS... > COVER

Prints the tests, one on a line, in the order in which they were chosen: always the one that notices
most of what none before it does, for each second that it takes. A test that is not among them adds
nothing to those that are.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from rows import Row, join

START = 0.05  # seconds that every test costs, however short it is


def noticed_by(rows: list[Row]) -> dict[str, set[int]]:
    """Return by test the numbers of the rows whose change it noticed."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for number, row in enumerate(rows):
        for test in row["killed"]:
            found[test].add(number)
    return found


def cover_of(found: dict[str, set[int]], seconds: dict[str, float]) -> list[str]:
    """Return tests in the order of what each adds to those before; the others add nothing."""
    left = {test: set(rows) for test, rows in found.items()}
    chosen = []
    while left:
        gains = {test: len(rows) / (START + seconds[test]) for test, rows in left.items()}
        best = max(sorted(gains), key=gains.__getitem__)
        gained = left.pop(best)
        chosen.append(best)
        left = {test: rest for test, rows in left.items() if (rest := rows - gained)}
    return chosen


def main() -> int:
    """Print the cover."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--times", type=int, default=1, help="by so many tests each")
    options = parser.parse_args()
    tests, rows = join(options.rows)
    seconds = {test: took or 0.0 for test, took in tests.items()}
    found = noticed_by(rows)
    chosen: list[str] = []
    for _ in range(options.times):
        rest = {test: numbers for test, numbers in found.items() if test not in chosen}
        chosen += cover_of(rest, seconds)
    total = sum(1 for row in rows if row["killed"])
    print(
        f"{len(chosen)} of {len(found)} tests that noticed any notice all {total} of {len(rows)} "
        f"changes that any noticed, in {sum(seconds[test] for test in chosen):.0f} s",
        file=sys.stderr,
    )
    for test in chosen:
        print(test)
    return 0


if __name__ == "__main__":
    sys.exit(main())
