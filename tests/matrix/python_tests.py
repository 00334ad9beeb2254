"""Pytest's tests, of PyTorch on the stand-in GPU too: what each runs, and what each notices.

A worker has a copy of the package first on PYTHONPATH; its extensions are links into a copy of a
build. A change of Python is a file of the package written anew, one of C is compiled and linked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from c_tests import (
    Copy,
    Reach,
    built_once,
    changed_text,
    configure_and_build,
    line_before,
    lines_of,
    linked_with_reach,
)
from sitecustomize import number_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants import Mutant

HERE: Final = Path(__file__).parent
ADAPTER: Final = "csrc/torch/native/"
LEAST_SECONDS: Final = 5.0
SLOWER: Final = 5
LONGEST: Final = 8.0  # tests that take more seconds of processor time are left out
MOST_SECONDS: Final = 30  # of a test, waiting included, after which its process ends
OUTER: Final = re.compile(r"[^\s#/}]|};?$")
MOST_ENDED: Final = 4  # processes that end, after which what is left is not run


@dataclass(frozen=True)
class Suite:
    """Tests that one command runs. files: a pattern of where they are, relative to the tree."""

    name: str
    command: tuple[str, ...]
    files: str
    variables: tuple[tuple[str, str], ...] = ()


@contextmanager
def none_left(answers: Path) -> Iterator[None]:
    """End, after a run, what is left of it: a change may let processes go on for ever."""
    yield
    mark = f"GMLAKE_MATRIX_ANSWERS={answers}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def suites_of(root: Path, names: list[str]) -> tuple[Suite, ...]:
    """Return suites by name; root: whose environments run them."""
    python, standin = (str(root / name / "bin/python") for name in (".venv", ".venv-standin"))
    launcher = ("-m", "tests.standin", "--devices", "2", "--capacity", "80GiB", "-m", "pytest")
    no_torch = (("GMLAKE_TEST_TORCH", "0"), ("GMLAKE_REQUIRE_LAB", "1"))
    checked = (("GMLAKE_TEST_CHECK_ORDER", "1"),)
    house = "--ignore=tests/python/house"  # those look at files, not at what the code does
    served = (*launcher[:-1], "gmlake", "run", "-m", "pytest", "-W", "ignore::gmlake.GmlakeWarning")
    of_pytorch = "tests/standin/test_pytorch_[!n]*.py"  # but for the one that runs the others
    every = (
        Suite("python", (python, "-m", "pytest", house), "tests/python", no_torch),
        Suite("torch", (standin, "-m", "pytest", house, "-m", "torch"), "tests/python"),
        Suite("standin", (standin, *launcher, "-m", "not long"), "tests/standin", checked),
        Suite("long", (standin, *launcher, "-m", "long"), "tests/standin", checked),
        Suite("native", (standin, *served), of_pytorch, checked),
    )
    return tuple(one for one in every if one.name in names)


@dataclass
class PyTests:
    """The tests of some suites. tree: whose code and tests."""

    tree: Path
    folder: Path
    suites: tuple[Suite, ...]
    packages: str
    reached: dict[tuple[str, str], set[tuple[str, int]]] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    known: dict[str, list[int]] = field(default_factory=dict)

    def build(self, name: str, flags: str, linked: str = "") -> Path:
        """Build the extensions and the stand-in; return the folder."""
        build = self.folder / name
        options = [
            *("-DGMLAKE_PYTHON=ON", "-DGMLAKE_LAB=ON", "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_C_FLAGS_RELEASE={flags}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
            *(f"-DCMAKE_SHARED_LINKER_FLAGS={linked}", f"-DCMAKE_MODULE_LINKER_FLAGS={linked}"),
            *(
                f"-DGMLAKE_STANDIN_PACKAGES={self.packages}",
                f"-DPython_EXECUTABLE={sys.executable}",
            ),
        ]
        configure_and_build(self.tree, build, options)
        return build

    def package(self, build: Path, folder: Path) -> Path:
        """Lay out the package with the extensions of a build; return what PYTHONPATH wants."""
        package = folder / "gmlake"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(
            self.tree / "src/gmlake", package, ignore=shutil.ignore_patterns("__pycache__")
        )
        places = {"_core": ".", "_planner": "planner", "_diagnosis": "diagnosis", "_lab": "."}
        places |= {
            "libcuda": "standin",
            "libnvidia-ml": "standin",
            "libgmlake_collect": "diagnosis",
        }
        for path in build.rglob("*.so*"):
            place = places.get(path.name.split(".")[0])
            if place and not path.is_symlink() and "CMakeFiles" not in path.parts:
                (package / place / path.name).symlink_to(path)
        shutil.copytree(self.tree / "csrc/torch/native", package / "adapter")
        shutil.copy(self.tree / "csrc/include/gmlake.h", package / "adapter")
        return folder

    def collect(self, suite: Suite, package: Path) -> list[str]:
        """Return the names of all tests of a suite."""
        answers = self.folder / f"{suite.name}.collected"
        answers.with_suffix(".log").unlink(missing_ok=True)
        self.run(suite, [], package, answers, PYTEST_ADDOPTS="--collect-only")
        lines = answers.with_suffix(".log").read_text().splitlines()
        return [line for line in lines if line.startswith("tests/") and "::" in line]

    def run(
        self, suite: Suite, tests: list[str], package: Path, answers: Path, **variables: str
    ) -> None:
        """Run some tests, or all where none is named; what each came to is appended to answers."""
        every = (str(path.relative_to(self.tree)) for path in sorted(self.tree.glob(suite.files)))
        files = list(dict.fromkeys(test.split("::")[0] for test in tests)) or list(every)
        listed = answers.with_suffix(".txt")
        listed.write_text(json.dumps(tests))
        paths = (str(package), str(HERE), str(self.tree), str(self.tree / "tests"))
        words = [
            *suite.command,
            "-p",
            "rows_of_pytest",
            "-p",
            "no:cacheprovider",
            "-q",
            "-o",
            f"faulthandler_timeout={MOST_SECONDS}",
            *files,
        ]
        given = {**dict(suite.variables), "PYTHONPATH": os.pathsep.join(paths), **variables}
        given |= {"GMLAKE_MATRIX_TESTS": str(listed), "GMLAKE_MATRIX_ANSWERS": str(answers)}
        given |= {"PYTHONDONTWRITEBYTECODE": "1"}
        with answers.with_suffix(".log").open("a") as log, none_left(answers):
            subprocess.run(
                words,
                cwd=self.tree,
                env={**os.environ, **given},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )

    def run_all(
        self, suite: Suite, tests: list[str], package: Path, answers: Path, **variables: str
    ) -> dict[str, tuple[bool, float, dict[str, list[int]]]]:
        """Run tests also where one ends the process; return whether each failed, what it ran."""
        answers.unlink(missing_ok=True)
        found: dict[str, tuple[bool, float, dict[str, list[int]]]] = {}
        left = list(tests)
        for _ in range(MOST_ENDED if variables.get("GMLAKE_MATRIX_SECONDS") else len(tests)):
            before = len(found)
            self.run(suite, left, package, answers, **variables)
            begun = None
            lines = answers.read_text().splitlines() if answers.exists() else []
            for line in lines:
                said = json.loads(line)
                if "begins" in said:
                    begun = said["begins"]
                else:
                    begun = None
                    found[said["ends"]] = (said["failed"], said["seconds"], said["hits"])
            if begun is not None:
                found[begun] = (True, 0.0, {})  # it ended the process
            left = [test for test in tests if test not in found]
            is_enough = "maxfail" in variables.get("PYTEST_ADDOPTS", "") and any(
                is_bad for is_bad, _, _ in found.values()
            )
            if not left or is_enough or len(found) == before:
                break
        if not found:  # nothing can even be collected
            found = dict.fromkeys(left, (True, 0.0, {}))
        return found

    def trace(self) -> None:
        """Run every test once, and note what it runs and how long it takes; kept in files."""
        files: defaultdict[str, set[int]] = defaultdict(set)
        for suite in self.suites:
            kept = self.folder / f"reached_{suite.name}.jsonl"
            if not kept.exists():
                if not (self.folder / "package_reach").exists():
                    self._build_for_tracing()
                self._trace(suite, kept)
            for text in kept.read_text().splitlines():
                test, took, hits = json.loads(text)
                self.seconds[suite.name, test] = inf if took is None else took
                places = {(file, line) for file, lines in hits.items() for line in lines}
                self.reached[suite.name, test] = places
                for file, line in places:
                    files[file].add(line)
        self.known = {file: sorted(lines) for file, lines in files.items()}

    def _trace(self, suite: Suite, kept: Path) -> None:
        package = self.folder / "package_reach"
        numbers = number_lines(package / "gmlake")
        reach = Reach(self.folder / f"{suite.name}.map")
        reach.clear()
        table = self.folder / "lines.json"
        table.write_text(json.dumps({"package": str(package / "gmlake"), "lines": numbers}))
        place_of = {
            number: (f"src/gmlake/{file}", line)
            for file, lines in numbers.items()
            for line, number in lines.items()
        }
        answers = self.folder / f"{suite.name}.traced"
        found = self.run_all(
            *(suite, self.collect(suite, package), package, answers),
            GMLAKE_REACH=str(reach.path),
            GMLAKE_REACH_LINES=str(table),
        )
        hits = {
            (module, address)
            for _, _, ran in found.values()
            for module, addresses in ran.items()
            for address in addresses
            if module != "python"
        }
        lines = lines_of(hits)
        with kept.with_suffix(".part").open("w") as file:
            for test, (is_bad, took, ran) in found.items():
                by_file: defaultdict[str, set[int]] = defaultdict(set)
                for module, addresses in ran.items():
                    for address in addresses:
                        if module == "python":
                            name, line = place_of[address]
                            by_file[name].add(line)
                            continue
                        path, line = lines.get((module, address), ("", 0))
                        if Path(path).is_relative_to(self.tree):
                            by_file[str(Path(path).relative_to(self.tree))].add(line)
                places = {name: sorted(numbers) for name, numbers in by_file.items()}
                file.write(json.dumps([test, None if is_bad else took, places]) + "\n")
        kept.with_suffix(".part").rename(kept)

    def took(self) -> dict[str, float]:
        """Return the seconds of each test; those of one that is never run are infinite."""
        return {test: took if took < LONGEST else inf for (_, test), took in self.seconds.items()}

    def worker(self, number: int) -> PyWorker:
        """Return what runs them under a change."""
        return PyWorker(self, built_once(self.folder / "plain_python", self.build), number)

    def _build_for_tracing(self) -> None:
        """Build what says which code it runs, and lay it out."""
        flags = "-O1 -g -fsanitize-coverage=trace-pc"
        build = self.build("reach_python", flags, linked_with_reach(self.folder))
        self.package(build, self.folder / "package_reach")

    def reaching(self, mutant: Mutant, suite: Suite) -> list[str]:
        """Return the tests of a suite that run a line, in an order that is by chance but fixed.

        Nothing says which lines of the adapter run; all tests are served by it in the suite
        "native".
        """
        if mutant.file.startswith(ADAPTER):
            return [
                test
                for (name, test), took in self.seconds.items()
                if name == suite.name == "native" and took < LONGEST
            ]
        place = line_before(self.known, mutant)
        found = [
            (zlib.crc32(f"{mutant}{key}".encode()), key[1])
            for key, hits in self.reached.items()
            if key[0] == suite.name and place in hits and self.seconds[key] < LONGEST
        ]
        return [test for _, test in sorted(found)]

    def within(self, suite: Suite, tests: list[str], most: float) -> list[str]:
        """Return the first of some tests, as many as take so many seconds."""
        spent, chosen = 0.0, []
        for test in tests:
            spent += self.seconds[suite.name, test]
            if spent > most:
                break
            chosen.append(test)
        return chosen

    def place(self, mutant: Mutant) -> tuple[str, int] | None:
        """Return the line that says whether a change is reached; None outside of functions."""
        text = (self.tree / mutant.file).read_text().split("\n")
        head = next((text[at] for at in range(mutant.number, -1, -1) if OUTER.match(text[at])), "")
        if mutant.file.endswith(".py"):
            is_inside = text[mutant.number].startswith("    ") and "def " in "".join(
                text[max(0, mutant.number - 200) : mutant.number]
            )
            is_inside = is_inside and head.startswith(("def ", "class ", "async def "))
        else:
            is_inside = "(" in head and "=" not in head
        return line_before(self.known, mutant) if is_inside else None


class Batch:
    """Changes none of whose tests reaches another of them, so that they can be made together."""

    def __init__(self, tests: PyTests, most: float) -> None:
        """Begin with none."""
        self._tests, self._most = tests, most
        self.changes: list[tuple[Mutant, int, dict[str, list[str]]]] = []
        self._places: set[tuple[str, int]] = set()
        self._reached: set[tuple[str, int]] = set()

    def add(self, mutant: Mutant) -> bool:
        """Return whether there was a place for it."""
        place = self._tests.place(mutant)
        if place is None or place in self._reached:
            return False
        if any(mutant.file == other for other, _ in self._places):
            return False
        chosen, count, lines = {}, 0, set()
        for suite in self._tests.suites:
            reaching = self._tests.reaching(mutant, suite)
            count += len(reaching)
            chosen[suite.name] = self._tests.within(suite, reaching, self._most)
            for test in chosen[suite.name]:
                lines |= self._tests.reached[suite.name, test]
        if lines & self._places:
            return False
        self._places.add(place)
        self._reached |= lines
        self.changes.append((mutant, count, chosen))
        return True


class PyWorker:
    """Runs the tests of pytest that reach a change."""

    def __init__(self, tests: PyTests, plain: Path, number: int) -> None:
        """Copy the build and the package."""
        self.tests, self.number = tests, number
        name = "_".join((*(suite.name for suite in tests.suites), str(number)))
        self.copy = Copy(tests.tree, plain, tests.folder / f"build_{name}")
        self.package = tests.package(self.copy.folder, tests.folder / f"package_{name}")

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[bool]:
        """Make a change for a while; yield whether it is one."""
        if mutant.file.endswith(".c"):
            with self.copy.changed(mutant) as is_other:
                yield is_other
            return
        is_adapter = mutant.file.startswith(ADAPTER)
        name = mutant.file.removeprefix(ADAPTER if is_adapter else "src/")
        path = self.package / ("gmlake/adapter" if is_adapter else ".") / name
        before = path.read_text()
        text = changed_text(self.tests.tree, mutant)
        try:
            if not is_adapter:  # it is compiled at its first use
                compile(text, mutant.file, "exec", dont_inherit=True)
            path.write_text(text)
            yield True
        except SyntaxError:
            yield False
        finally:
            path.write_text(before)

    def has(self, mutant: Mutant) -> bool:
        """Return whether a test of pytest might notice."""
        return mutant.file.startswith(("src/", ADAPTER)) or self.copy.has(mutant.file)

    def killed(
        self, mutant: Mutant, *, most: float = inf, is_whole: bool = True
    ) -> tuple[int, int, list[str]]:
        """Return how many reach a change, how many were run, and which noticed it.

        most: of each suite as many are run as take so many seconds. is_whole: else they stop at the
        first that notices.
        """
        reached, run, killed = 0, 0, []
        for suite in self.tests.suites:
            if killed and not is_whole:
                break
            reaching = self.tests.reaching(mutant, suite)
            chosen = self.tests.within(suite, reaching, most)
            reached, run = reached + len(reaching), run + len(chosen)
            killed += self._killed(suite, chosen, is_whole=is_whole) if chosen else []
        return reached, run, killed

    def killed_by_batch(self, batch: Batch) -> list[tuple[Mutant, int, int, list[str]]]:
        """Return of each change what killed() does; what is none is left out."""
        with ExitStack() as stack:
            made = [one for one in batch.changes if stack.enter_context(self.changed(one[0]))]
            noticed: set[str] = set()
            for suite in self.tests.suites:
                tests = list(dict.fromkeys(t for _, _, by in made for t in by[suite.name]))
                if tests:
                    noticed |= set(self._killed(suite, tests, is_whole=True))
        return [
            (
                *(mutant, count, sum(map(len, chosen.values()))),
                [test for tests in chosen.values() for test in tests if test in noticed],
            )
            for mutant, count, chosen in made
        ]

    def _killed(self, suite: Suite, tests: list[str], *, is_whole: bool) -> list[str]:
        folder = self.tests.folder
        limits = folder / f"limits{self.number}.json"
        limits.write_text(
            json.dumps(
                {
                    test: LEAST_SECONDS + SLOWER * self.tests.seconds[suite.name, test]
                    for test in tests
                }
            )
        )
        answers = folder / f"{suite.name}{self.number}.answers"
        answers.with_suffix(".log").unlink(missing_ok=True)
        found = self.tests.run_all(
            suite,
            tests,
            self.package,
            answers,
            GMLAKE_MATRIX_SECONDS=str(limits),
            PYTEST_ADDOPTS="" if is_whole else "--maxfail=1",
        )
        return sorted(test for test, (is_bad, _, _) in found.items() if is_bad)
