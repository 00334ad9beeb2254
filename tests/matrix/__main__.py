"""Find which tests notice which small changes of the code: one row for each change, as they come.

python tests/matrix --seed 1 --count 400 --packages FOLDER --rows tests/matrix/rows.jsonl

A change is run against the tests that reach its line, those of C and of pytest, also when some have
noticed it already; --first stops at the first that does. What does not compile, or compiles to the
same code, gets no row. Rows that are there already are kept, and their changes are passed over.

The first line of the file names the tests, and the seconds that each takes: null for one that takes
too many, or fails without a change. A row has the numbers of those that noticed.
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
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from c_tests import CTests, CWorker
from mutants import by_hand, in_order
from python_tests import Batch, PyTests, PyWorker, suites_of
from rows import place_of, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants import Mutant

ROOT = Path(__file__).resolve().parents[2]


def opened(path: Path, seconds: dict[str, float | None]) -> tuple[list[str], set[Any]]:
    """Begin a file of rows, or read it: the tests in their order, and which changes it has.

    Raises ValueError where it has rows of other tests.
    """
    if not path.exists():
        path.write_text(json.dumps({"tests": seconds}) + "\n")
        return list(seconds), set()
    tests, rows = read(path)
    if missing := set(seconds) - set(tests):
        raise ValueError(f"{path} has rows of other tests, none of {min(missing)}: name another")
    return list(tests), {place_of(row) for row in rows}


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="whose code and tests")
    parser.add_argument("--work", type=Path, default=ROOT / "build/matrix", help="for builds")
    parser.add_argument("--packages", default="", help="those of a Python with PyTorch for CUDA")
    parser.add_argument("--suites", nargs="+", default=["c", "python", "torch", "standin"])
    parser.add_argument("--most", type=float, default=20.0, help="seconds of a suite for a change")
    parser.add_argument("--rooms", nargs="+", default=["csrc", "src"])
    parser.add_argument(
        "--by-hand", action="store_true", help="the changes of mutants_by_hand.json"
    )
    parser.add_argument("--count", type=int, default=240, help="of rows")
    parser.add_argument("--drawn", type=int, help="look at so many changes, also if fewer are any")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--together", type=int, default=0, help="so many changes at once")
    parser.add_argument("--first", action="store_true", help="stop at the first that notices")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.together and "c" in options.suites:
        parser.error("--together is for suites of pytest: leave out c from --suites")
    return options


def row_of(mutant: Mutant, reached: int, run: int, killed: list[str]) -> dict[str, Any]:
    """Return the row of a change."""
    file, line, after = mutant.place
    return {
        "file": file,
        "line": line,
        "before": mutant.before.strip(),
        "after": after,
        "reached": reached,
        "run": run,
        "killed": killed,
        "seconds": 0.0,
    }


class Everything:
    """The suites that were asked for, and a worker of each for every job."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Build, and trace what was not traced yet."""
        tree, folder = options.tree.resolve(), options.work.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name in options.suites if name != "c"]
        self.c = CTests(tree, folder, options.packages) if "c" in options.suites else None
        self.py = PyTests(tree, folder, suites_of(ROOT, names), options.packages) if names else None
        self.seconds: dict[str, float | None] = {}
        for tests in filter(None, (self.c, self.py)):
            tests.trace()
            for test, took in tests.took().items():
                self.seconds[test] = took if isfinite(took) else None
        self.workers: SimpleQueue[list[CWorker | PyWorker]] = SimpleQueue()
        for number in range(options.jobs):
            self.workers.put([one.worker(number) for one in (self.c, self.py) if one])

    def rows_together(
        self, drawn: list[Mutant], known: set[Any], options: argparse.Namespace
    ) -> Iterator[dict[str, Any]]:
        """Yield rows of the suites of pytest; many changes are made at once."""
        worker = self.workers.get()[-1]
        left = [one for one in drawn if worker.has(one) and one.place not in known]
        while left:
            batch = Batch(self.py, options.most)
            rest = []
            for at, mutant in enumerate(left):
                if len(batch.changes) == options.together or at == 8 * options.together:
                    rest += left[at:]
                    break
                if self.py.place(mutant) and not batch.add(mutant):
                    rest.append(mutant)
            left = rest
            for mutant, reached, run, killed in worker.killed_by_batch(batch):
                yield row_of(mutant, reached, run, killed)

    def row(self, mutant: Mutant, options: argparse.Namespace) -> dict[str, Any] | None:
        """Return the row of a change; None where it is none."""
        workers = self.workers.get()
        answer = row_of(mutant, 0, 0, [])
        begin = time.monotonic()
        try:
            able = [worker for worker in workers if worker.has(mutant)]
            for worker in able:
                if options.first and answer["killed"]:
                    break
                with worker.changed(mutant) as is_other:
                    if not is_other:
                        return None
                    reached, run, killed = worker.killed(
                        mutant, most=options.most, is_whole=not options.first
                    )
                answer["reached"] += reached
                answer["run"] += run
                answer["killed"] += killed
        finally:
            self.workers.put(workers)
        answer["seconds"] = round(time.monotonic() - begin, 1)
        return answer if able else None


def main() -> int:
    """Append the rows."""
    options = arguments()
    every = Everything(options)
    tests, known = opened(options.rows, every.seconds)
    numbers = {test: number for number, test in enumerate(tests)}
    lock, begin, done = Lock(), time.monotonic(), len(known)
    drawn = by_hand() if options.by_hand else in_order(options.rooms, options.seed, options.tree)
    drawn = drawn[: options.drawn]

    def run(mutant: Mutant) -> None:
        if done >= options.count or mutant.place in known:
            return
        row = every.row(mutant, options)
        if row is not None:
            add(row)

    def add(row: dict[str, Any]) -> None:
        nonlocal done
        with lock:
            if done >= options.count:
                return
            done += 1
            said = f"{len(row['killed'])} of {row['run']} of {row['reached']} in {row['seconds']} s"
            where = f"{row['file']}:{row['line']}"
            print(f"{time.monotonic() - begin:.0f} s, {done}: {where} {said}", flush=True)
            row["killed"] = sorted(numbers[test] for test in row["killed"])
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")

    if options.together:
        for row in every.rows_together(drawn, known, options):
            add(row)
            if done >= options.count:
                break
        return 0
    with ThreadPoolExecutor(options.jobs) as threads:
        list(threads.map(run, drawn))
    return 0


if __name__ == "__main__":
    sys.exit(main())
