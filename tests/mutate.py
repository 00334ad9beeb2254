"""Change the code in small ways, one at a time, and see whether a test notices.

    make mutate [ROOM=csrc/lake] [COUNT=20] [SEED=1] [ONLY=7]
    make mutate ROOM=by-hand [ONLY=7]

ROOM has folders, files, globs or the names of ROOMS in tests/mutants.py. What survives is a test
that is missing, code that does nothing, or a change that means the same: a person says which. A
change that does not compile does not count. ONLY repeats one. The room `by-hand` has the changes
of tests/mutants_by_hand.json: to locks, to the order of streams, and to what is undone or freed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

from mutant_tests import Tests, UnfitError
from mutants import Mutant, by_hand, files_of, in_order

DRAWN_FOR_EACH = 3  # that many are drawn for each that counts, since some do not compile


def _try(tests: Tests, number: int, mutant: Mutant) -> str | None:
    """Print what became of a mutant. Return what noticed it; None: it does not count."""
    begin = time.monotonic()
    try:
        said = tests.verdict(mutant)
    except ValueError as error:
        print(f"{number} does not count, {error}: {mutant.file}:{mutant.number + 1}", flush=True)
        return None
    took = f"{time.monotonic() - begin:.0f} s"
    what = (
        f"noticed by {said}: {mutant.file}:{mutant.number + 1}" if said else f"SURVIVES: {mutant}"
    )
    print(f"{number} ({took}) {what}", flush=True)
    return said


def main() -> int:
    """Print what became of each, and the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--room", nargs="+", default=["core"], help="files, folders, globs, names")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of those to repeat")
    parser.add_argument("--jobs", type=int, default=1, help="so many compilers at once")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no change after these")
    parser.add_argument(
        "--longest", type=float, default=60, help="leave out tests that take longer, in s of CPU"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        is_by_hand = options.room == ["by-hand"]
        every = by_hand() if is_by_hand else in_order(options.room, options.seed)
        drawn = list(enumerate(every, 1))
    except ValueError as error:
        sys.exit(str(error))
    options.count = len(drawn) if is_by_hand else options.count
    wanted = drawn[: DRAWN_FOR_EACH * options.count]
    if options.only:
        wanted = [drawn[number - 1] for number in options.only if number <= len(drawn)]
    print(f"room {' '.join(options.room)}, seed {options.seed}: {len(drawn)} changes", flush=True)
    tests = Tests(options.longest, options.jobs)
    survivors, timeouts, tried, uncounted = [], 0, 0, 0
    try:
        begin = time.monotonic()
        files = sorted({one.file for one in every}) if is_by_hand else files_of(options.room)
        tests.prepare(files)
        print(f"the unchanged code took {time.monotonic() - begin:.0f} s", flush=True)
        begin = time.monotonic()
        for number, mutant in wanted:
            is_over = time.monotonic() - begin > 60 * options.minutes
            if is_over or (tried == options.count and not options.only):
                break
            said = _try(tests, number, mutant)
            tried += said is not None
            uncounted += said is None
            timeouts += "timed out" in (said or "")
            if said == "":
                survivors.append(number)
    except UnfitError as error:
        sys.exit(str(error))
    print(
        f"{tried - len(survivors)} of {tried} were noticed, {timeouts} of them by time-out; "
        f"{uncounted} more did not compile; survivors: {' '.join(map(str, survivors)) or 'none'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
