"""Count what the runs of tests in a log came to; say what was left out and why, and what failed.

    python tests/counted.py LOG [BROKEN ...]

LOG has what ctest and pytest printed, as it is or behind the names of tests/every.py. BROKEN names
stages that failed: one that failed before it ran a test counts as a failure, too.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_BEHIND: Final = r"(?:[\w-]+ +\| )?"
_CTEST: Final = re.compile(rf"{_BEHIND}\d+% tests passed(?:, (\d+) tests? failed)? out of (\d+)")
_PYTEST: Final = re.compile(rf"{_BEHIND}=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")
_SKIPPED: Final = re.compile(rf"{_BEHIND}SKIPPED \[(\d+)\] \S+: (.+)")
_FAILED: Final = ("failed", "error", "errors")
_FAILED_TEST: Final = re.compile(rf"{_BEHIND}(?:FAILED|ERROR) (\S+::\w+(?:\[.*?\](?= - |$))?)")
_FAILED_IN_C: Final = re.compile(rf"{_BEHIND}\s+\d+ - (\w+) \(\w")
_HANGS: Final = re.compile(rf"{_BEHIND}Timeout \([\d:]+\)!")
_IN_A_TEST: Final = re.compile(r'.*  File "\S*?(tests/\S+)", line (\d+) in (test_\w+)')
_MOST_REASONS: Final = 20
_MOST_FAILED: Final = 40


def summary(lines: Iterable[str], broken: int) -> list[str]:
    """Return a line for each reason why tests were left out, for each that failed, and the counts.

    A test that pytest stopped since it hung has no line of its own; its frame is in the traceback.
    """
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong: dict[str, None] = {}
    is_hanging = False
    for line in lines:
        if _HANGS.match(line):
            is_hanging = True
        elif is_hanging and (found := _IN_A_TEST.match(line)):
            wrong[f"{found[1]}:{found[2]} {found[3]} hung"] = None
            is_hanging = False
        elif found := _FAILED_TEST.match(line) or _FAILED_IN_C.match(line):
            wrong[found[1]] = None
        if found := _CTEST.match(line):
            failed = int(found[1] or 0)
            kinds.update(passed=int(found[2]) - failed, failed=failed)
        elif found := _PYTEST.match(line):
            for number, kind in re.findall(r"(\d+) (\w+)", found[1]):
                kinds["failed" if kind in _FAILED else kind] += int(number)
        elif found := _SKIPPED.match(line):
            reasons[found[2].strip()] += int(found[1])
    # A build or a linter that failed ran no test, but is no success either.
    failed = max(kinds["failed"], broken)
    said = [f"left out {many}: {why}" for why, many in reasons.most_common(_MOST_REASONS)]
    said += [f"failed: {name}" for name in list(wrong)[:_MOST_FAILED]]
    return [*said, f"{kinds['passed']} passed, {failed} failed, {kinds['skipped']} skipped"]


def main() -> None:
    """Count what a log has."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace").splitlines()
    print(*summary(lines, len(sys.argv[2:])), sep="\n")


if __name__ == "__main__":
    main()
