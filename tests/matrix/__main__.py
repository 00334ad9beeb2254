"""Find which tests notice which small changes of the code: one row for each change, as they come.

python tests/matrix --seed 1 --count 400 --rows tests/matrix/rows_c.jsonl

A change is run against every test of C that reaches its line, also when some have noticed it
already; --first stops at the first that does. What does not compile, or compiles to the same code,
gets no row. Rows that are there already are kept, and their changes are passed over.

The first line of the file names the tests, and the seconds of processor time that each takes: null
for one that takes too many, or fails without a change. A row has the numbers of those that noticed.
tests/matrix/cover.py reads it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from c_tests import CTests, Worker
from mutants import Mutant, in_order

ROOT = Path(__file__).resolve().parents[2]


def opened(path: Path, seconds: dict[str, float | None]) -> set[tuple[str, int, str]]:
    """Begin a file of rows, or read which changes it has. Raises ValueError: of other tests."""
    if not path.exists():
        path.write_text(json.dumps({"tests": seconds}) + "\n")
        return set()
    head, *rows = map(json.loads, path.read_text().splitlines())
    if list(head["tests"]) != list(seconds):
        raise ValueError(f"{path} has rows of other tests: name another file")
    return {(row["file"], row["line"], row["after"]) for row in rows}


def main() -> int:
    """Append the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="whose code and tests")
    parser.add_argument("--work", type=Path, default=ROOT / "build/matrix", help="for builds")
    parser.add_argument("--packages", default="", help="those of a Python with PyTorch for CUDA")
    parser.add_argument("--rooms", nargs="+", default=["csrc"])
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--first", action="store_true", help="stop at the first that notices")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    tests = CTests(options.tree.resolve(), options.work.resolve(), options.packages)
    tests.trace()
    numbers = {str(test): number for number, test in enumerate(tests.seconds)}
    took = {
        str(test): seconds if isfinite(seconds) else None for test, seconds in tests.seconds.items()
    }
    known = opened(options.rows, took)
    plain = tests.folder / "plain"
    if not (plain / "built").exists():
        tests.build("plain", "-O1")
        (plain / "built").touch()
    workers: SimpleQueue[Worker] = SimpleQueue()
    for number in range(options.jobs):
        first = Worker(tests, plain, number)
        workers.put(first)
    lock, begin, done = Lock(), time.monotonic(), len(known)

    def run(mutant: Mutant) -> None:
        nonlocal done
        place = (mutant.file, mutant.number + 1, mutant.after.strip())
        if done >= options.count or place in known:
            return
        worker = workers.get()
        try:
            row = worker.row(mutant, is_whole=not options.first)
        finally:
            workers.put(worker)
        with lock:
            if row is None or done >= options.count:
                return
            done += 1
            said = f"{len(row['killed'])} of {row['reached']} in {row['seconds']} s"
            where = f"{row['file']}:{row['line']}"
            print(f"{time.monotonic() - begin:.0f} s, {done}: {where} {said}", flush=True)
            row["killed"] = [numbers[test] for test in row["killed"]]
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")

    drawn = in_order(options.rooms, options.seed, options.tree)
    with ThreadPoolExecutor(options.jobs) as threads:
        list(threads.map(run, (one for one in drawn if first.copy.has(one.file))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
