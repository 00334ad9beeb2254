"""Random programs against the lakes, as many as wanted, under the sanitizers.

make stress [PROGRAMS=20000] [SEED=1]

Runs that many programs of build/address/tests/c/test_lake_stress, then a fifth as many with four
threads of build/thread/tests/c/test_lake_stress, a few at a time: what ends one process leaves the
others. The output of a process that failed is kept in build/stress, and ends with the line that
repeats the program alone.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build/stress"
AT_ONCE = {"address": 50, "thread": 10}  # programs of a process
THREADS = {"address": "1", "thread": "4"}
COUNT = re.compile(r"([a-z][a-z ]*): (\d+)")
REPEATS = re.compile(r"^failed: (.*)$", re.MULTILINE)


def run(kind: str, seed: int, programs: int) -> tuple[bool, Counter[str], str]:
    """Whether that many programs pass, how often what happened, and all that was said."""
    settings = {"seed": seed, "programs": programs, "threads": THREADS[kind]}
    program = [str(ROOT / f"build/{kind}/tests/c/test_lake_stress")]
    program += [f"{name}={value}" for name, value in settings.items()]
    # ThreadSanitizer of older compilers stops where addresses are randomised by many bits.
    if kind == "thread" and shutil.which("setarch"):
        program = ["setarch", "-R", *program]
    done = subprocess.run(
        program, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    counts = Counter({name.strip(): int(count) for name, count in COUNT.findall(done.stdout)})
    return done.returncode == 0, counts, done.stdout


def run_all(kind: str, programs: int, first: int) -> bool:
    """All programs, and a summary. Whether none failed."""
    counts: Counter[str] = Counter()
    failed: list[str] = []
    seed, began = first, time.monotonic()
    while seed < first + programs:
        many = min(AT_ONCE[kind], first + programs - seed)
        passed, more, said = run(kind, seed, many)
        counts += more
        if not passed:
            KEPT.mkdir(parents=True, exist_ok=True)
            (KEPT / f"{kind}-{seed}.txt").write_text(said, encoding="utf-8")
            failed += REPEATS.findall(said) or [f"of {KEPT}/{kind}-{seed}.txt"]
        seed += many
        word = "passed" if passed else "FAILED"
        speed = (seed - first) / (time.monotonic() - began)
        print(
            f"{kind}: programs {seed - many} to {seed - 1} {word}; {speed:,.1f} each second",
            flush=True,
        )
    print(f"{kind}: programs {first} to {seed - 1}: {len(failed)} failed")
    for line in failed:
        print(f"  {line}")
    print("  " + ", ".join(f"{name} {count:,}" for name, count in counts.items()), flush=True)
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=tuple(AT_ONCE), help="one of the two alone")
    given = parser.parse_args()
    kinds = (given.kind,) if given.kind else tuple(AT_ONCE)
    parts = {"address": given.programs, "thread": given.programs // (1 if given.kind else 5)}
    passed = [run_all(kind, parts[kind], given.seed) for kind in kinds]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
