"""Change the code in small ways, one at a time, and see whether a test notices.

make mutate [COUNT=20] [SEED=...]

What survives is a test that is missing, code that does nothing, or a change that means the same.
C is changed in csrc/policy, csrc/plan, csrc/lake and csrc/core, and the C tests are run, the
shortest first, with a check for leaks; Python in src/gmlake/trace, and the tests of that folder.
Needs `make test-c` and `make test-python` to pass.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build/mutate"
TREE = WORK / "tree"
BUILD = WORK / "build"
C_FOLDERS = ("csrc/policy", "csrc/plan", "csrc/lake", "csrc/core")
PYTHON_FILES = (
    "src/gmlake/trace/*.py",
    *(f"src/gmlake/snapshots/{name}.py" for name in ("opening", "reading", "fields")),
    *(f"src/gmlake/snapshots/{name}.py" for name in ("segment_table", "start_state")),
)
PYTHON_TESTS = (
    *("trace", "snapshot", "pickle_reader", "memory_limits", "segment_table", "recordings"),
    *("replay", "validation", "hostile_files", "snapshots_files"),
)
# Tests of code that is not changed here.
ELSEWHERE = "^test_(collect|diagnose|driver|planner|stalloc|fake)"
QUICK_SECONDS = 1.0  # these run together
SETTINGS = {
    "LSAN_OPTIONS": "allocator_may_return_null=1",
    "GMLAKE_STORM_OPERATIONS": "100000",
    "GMLAKE_STORM_THREADED_OPERATIONS": "4000",
}
SLOWER = 8  # times as long as the unchanged code: whoever takes longer hangs

SWAPS = (
    *((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != ")),
    *((" != ", " == "), (" + ", " - "), (" - ", " + "), (" += ", " -= "), ("++;", "--;")),
    *((" 0", " 1"), (" 1", " 2"), (" 2 *", " 3 *")),
)
C_SWAPS = ((" && ", " || "), (" || ", " && "), ("true", "false"), ("false", "true"), ("(!", "("))
PYTHON_SWAPS = ((" and ", " or "), (" or ", " and "), ("True", "False"), ("False", "True"))
# A call or an assignment alone on its line, which may be left out.
STATEMENT = re.compile(r"^\s+[a-z][\w>.\[\]\-]*(\(.*\)| [-+|&]?= .*);$")
COMMENT = re.compile(r"^\s*(/\*|\*|//|#|\"\"\")")


@dataclass(frozen=True)
class Mutant:
    """One changed line. number: from 0."""

    file: str
    number: int
    before: str
    after: str

    def __str__(self) -> str:
        """Show it as a diff would."""
        place = f"{self.file}:{self.number + 1}"
        return f"{place}\n  - {self.before.strip()}\n  + {self.after.strip() or '(nothing)'}"


def mutants_of(file: str, lines: list[str]) -> list[Mutant]:
    """Return every change there is to a file."""
    is_c = file.endswith(".c")
    found = []
    for number, line in enumerate(lines):
        if COMMENT.match(line):
            continue
        code = line.split("/*" if is_c else "  #")[0]
        for old, new in SWAPS + (C_SWAPS if is_c else PYTHON_SWAPS):
            for match in re.finditer(re.escape(old), code):
                changed = line[: match.start()] + new + line[match.end() :]
                found.append(Mutant(file, number, line, changed))
        if is_c and STATEMENT.match(line):
            found.append(Mutant(file, number, line, ""))
    return found


def drawn(count: int, seed: int) -> list[Mutant]:
    """Return a sample: each file as often as it has lines."""
    files = [
        str(path.relative_to(ROOT))
        for folder in C_FOLDERS
        for path in sorted((ROOT / folder).rglob("*.c"))
    ]
    files += [
        str(path.relative_to(ROOT))
        for pattern in PYTHON_FILES
        for path in sorted(ROOT.glob(pattern))
    ]
    every = [
        mutant
        for file in files
        for mutant in mutants_of(file, (ROOT / file).read_text().split("\n"))
    ]
    return random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311


def run(*command: str, seconds: float = 900, **variables: str) -> bool:
    """Return whether it came to a good end in time."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def prepare() -> None:
    """Copy the code, and build it in a way that a change relinks one library alone."""
    shutil.rmtree(WORK, ignore_errors=True)  # objects of an earlier change would look newer
    for name in ("csrc", "lab", "tests/c", "src"):
        shutil.copytree(ROOT / name, TREE / name)
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, TREE)
    options = ("-DGMLAKE_TESTS=ON", "-DGMLAKE_ONE_LIBRARY=ON", "-DGMLAKE_SANITIZE=leak")
    if not run("cmake", "-S", str(TREE), "-B", str(BUILD), *options) or not build():
        sys.exit("the unchanged code does not build")
    for core in (ROOT / ".venv/lib").glob("python3*/site-packages/gmlake/_core*.so"):
        shutil.copy(core, TREE / "src/gmlake")


def build() -> bool:
    """Return whether it builds."""
    return run("cmake", "--build", str(BUILD), "--parallel", "2")


@dataclass(frozen=True)
class Tests:
    """Commands that say whether all is well, and how long each takes with the unchanged code."""

    c: list[tuple[str, ...]]
    python: tuple[str, ...]
    seconds: dict[tuple[str, ...], float]

    def pass_(self, command: tuple[str, ...]) -> bool:
        """Return whether they pass in a time that is usual."""
        source = str(TREE / "src")
        return run(
            *command, seconds=30 + SLOWER * self.seconds[command], PYTHONPATH=source, **SETTINGS
        )


def seconds_of_earlier_runs() -> dict[str, float]:
    """Return how long each C test took on the average, as `make test-c` noted it."""
    file = ROOT / "build/c/Testing/Temporary/CTestCostData.txt"
    found = re.findall(r"^(test_\w+) \d+ ([\d.]+)$", file.read_text(), re.MULTILINE)
    return {name: float(seconds) for name, seconds in found}


def tests_of_unchanged(longest_seconds: float) -> Tests:
    """Run all tests once, and put those in C in the order of their times."""
    ctest = ("ctest", "--test-dir", str(BUILD))
    long = [name for name, cost in seconds_of_earlier_runs().items() if cost > longest_seconds]
    left_out = f"{ELSEWHERE}|^({'|'.join(long)})$" if long else ELSEWHERE
    done = subprocess.run(
        [*ctest, "-E", left_out],
        env={**os.environ, **SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"a test of the unchanged code fails:\n{done.stdout[-2000:]}")
    times = {
        name: float(seconds)
        for name, seconds in re.findall(r"(test_\w+) \.+ +Passed +([\d.]+) sec", done.stdout)
    }
    quick = [name for name in times if times[name] < QUICK_SECONDS]
    slow = sorted((name for name in times if name not in quick), key=lambda name: times[name])
    together = (*ctest, "--stop-on-failure", "-R", f"^({'|'.join(quick)})$")
    seconds = {together: sum(times[name] for name in quick)}
    seconds |= {(*ctest, "-R", f"^{name}$"): times[name] for name in slow}
    found = (ROOT.glob(f"tests/python/**/test_{name}.py") for name in PYTHON_TESTS)
    files = [str(path) for paths in found for path in paths]
    python = (str(ROOT / ".venv/bin/python"), "-m", "pytest", "-x", "-q", *files)
    made = Tests(list(seconds), python, seconds)
    begin = time.monotonic()
    if not run(*python, PYTHONPATH=str(TREE / "src")):
        sys.exit("a Python test of the unchanged code fails")
    seconds[python] = time.monotonic() - begin
    return made


def survives(mutant: Mutant, tests: Tests) -> bool:
    """Return whether no test notices. What does not build is noticed."""
    path = TREE / mutant.file
    whole = path.read_text()
    lines = whole.split("\n")
    lines[mutant.number] = mutant.after
    path.write_text("\n".join(lines))
    try:
        if mutant.file.endswith(".py"):
            return tests.pass_(tests.python)
        return build() and all(tests.pass_(command) for command in tests.c)
    finally:
        path.write_text(whole)


def main() -> int:
    """Print what survives, and how many were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no change after these")
    parser.add_argument("--skip", type=int, default=0, help="so many of the sample")
    parser.add_argument(
        "--longest", type=float, default=1200, help="leave out longer C tests, in s"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    prepare()
    tests = tests_of_unchanged(options.longest)
    begin = time.monotonic()
    tried, left = 0, 0
    for mutant in drawn(options.count, options.seed)[options.skip :]:
        if time.monotonic() - begin > 60 * options.minutes:
            break
        tried += 1
        if survives(mutant, tests):
            left += 1
            print(f"{tried} survives: {mutant}", flush=True)
    print(f"{tried - left} of {tried} were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
