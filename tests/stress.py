"""Random programs of any length against the lakes, under the sanitizers.

make stress [OPERATIONS=5000000] [SEED=1] [FAILING=4]

Runs build/address/tests/c/test_lake_stress with one thread for so many operations, then
build/thread/tests/c/test_lake_stress with four for a fifth as many, a few seeds at a time: what
ends one process leaves the others. FAILING: of four seeds in a row, how many have calls of the
driver that fail. The output of a run that failed is kept in build/stress, and names its seeds.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build/stress"
PAIRS = 10  # of policies and drivers, each of which makes the operations of a seed
SEED_OPERATIONS = 2500  # as in test_lake_stress.c
COUNT = re.compile(r"([a-z][a-z ]*): (\d+)")


def run(kind: str, seed: int, seeds: int, failing: int) -> tuple[bool, Counter[str], str]:
    """Whether that many seeds pass, how often what happened, and all that the program said."""
    operations = str(seeds * SEED_OPERATIONS)
    is_threaded = kind == "thread"
    settings = {
        "GMLAKE_STRESS_SEED": str(seed),
        "GMLAKE_STRESS_FAILING": str(failing),
        "GMLAKE_STRESS_OPERATIONS": "0" if is_threaded else operations,
        "GMLAKE_STRESS_THREADED_OPERATIONS": operations if is_threaded else "0",
    }
    program = [str(ROOT / f"build/{kind}/tests/c/test_lake_stress")]
    # ThreadSanitizer of older compilers stops where addresses are randomised by many bits.
    if is_threaded and shutil.which("setarch"):
        program = ["setarch", "-R", *program]
    done = subprocess.run(
        program,
        env=os.environ | settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    counts = Counter({name.strip(): int(count) for name, count in COUNT.findall(done.stdout)})
    return done.returncode == 0, counts, done.stdout


def run_all(kind: str, operations: int, first: int, failing: int) -> bool:
    """All seeds, and a summary. Whether none failed."""
    seeds = 2 if kind == "thread" else 10
    counts: Counter[str] = Counter()
    failed: list[int] = []
    made, seed, began = 0, first, time.monotonic()
    while made < operations:
        passed, more, said = run(kind, seed, seeds, failing)
        counts += more
        made += seeds * SEED_OPERATIONS * PAIRS
        if not passed:
            failed.append(seed)
            KEPT.mkdir(parents=True, exist_ok=True)
            (KEPT / f"{kind}-{seed}.txt").write_text(said, encoding="utf-8")
        seed += seeds
        speed = made / (time.monotonic() - began)
        word = "passed" if passed else "FAILED"
        print(f"{kind}: seeds {seed - seeds} to {seed - 1} {word}; {made:,} operations,", end=" ")
        print(f"{speed:,.0f} each second", flush=True)
    print(f"{kind}: {made:,} operations of seeds {first} to {seed - 1}:", end=" ")
    print(f"{len(failed)} runs failed" + "".join(f", {KEPT}/{kind}-{at}.txt" for at in failed))
    print("  " + ", ".join(f"{name} {count:,}" for name, count in counts.items()), flush=True)
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failing", type=int, default=4, choices=range(5))
    parser.add_argument("--kind", choices=("address", "thread"), help="one of the two alone")
    given = parser.parse_args()
    kinds = (given.kind,) if given.kind else ("address", "thread")
    parts = {"address": given.operations, "thread": given.operations // (1 if given.kind else 5)}
    passed = [run_all(kind, parts[kind], given.seed, given.failing) for kind in kinds]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
