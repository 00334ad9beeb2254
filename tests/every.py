"""Run rows of targets of the Makefile side by side, each line behind its target; count the tests.

python tests/every.py MAKE 'TARGET ...' 'TARGET ...' ...

A row's targets run one after another, also behind one that failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from threading import Lock

from counted import summary


def run(make: str, lines: list[str], lock: Lock, target: str) -> int:
    """Run a target and pass its lines on; return its exit code."""
    command = (*make.split(), "--no-print-directory", target)
    name = target.removeprefix("test-")

    def show(line: str) -> None:
        shown = f"{name:<7} | {line.rstrip()}"
        with lock:
            lines.append(shown)
            print(shown, flush=True)

    begin = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            show(line)
    show(f"took {time.monotonic() - begin:.0f} s")
    return running.returncode


def run_row(make: str, lines: list[str], lock: Lock, row: str) -> list[str]:
    """Run targets one after another; return those that failed."""
    return [target for target in row.split() if run(make, lines, lock, target)]


def main() -> int:
    """Return 1 if a target failed."""
    make, *rows = sys.argv[1:]
    lines: list[str] = []
    with ThreadPoolExecutor(len(rows)) as workers:
        failed = [*chain(*workers.map(partial(run_row, make, lines, Lock()), rows))]
    print(*summary(lines, len(failed)), sep="\n")
    if failed:
        print(f"failed: {' '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
