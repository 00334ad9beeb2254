"""Run targets of the Makefile two at a time, each line behind its target, and count the tests.

python tests/every.py MAKE TARGET ...
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final

from counted import summary

AT_ONCE: Final = 2


def run(make: str, lines: list[str], lock: Lock, target: str) -> int:
    """Run a target and pass its lines on; return its exit code."""
    command = (make, "--no-print-directory", target)
    name = target.removeprefix("test-")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            shown = f"{name:<7} | {line.rstrip()}"
            with lock:
                lines.append(shown)
                print(shown, flush=True)
    return running.returncode


def main() -> int:
    """Return 1 if a target failed."""
    make, *targets = sys.argv[1:]
    lines: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as workers:
        codes = list(workers.map(partial(run, make, lines, Lock()), targets))
    failed = [target for target, code in zip(targets, codes, strict=True) if code]
    print(*summary(lines, len(failed)), sep="\n")
    if failed:
        print(f"failed: {' '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
