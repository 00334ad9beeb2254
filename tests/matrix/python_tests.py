"""Pytest's tests, of PyTorch on the stand-in GPU too: what each runs, and what each notices.

A worker has a copy of the package first on PYTHONPATH; its extensions are links into a copy of a
build. A change of Python is a file of the package written anew, one of C is compiled and linked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from c_tests import Copy, Reach, changed_text, configure_and_build, lines_of
from sitecustomize import number_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants import Mutant

HERE: Final = Path(__file__).parent
LEAST_SECONDS: Final = 5.0
SLOWER: Final = 5
LONGEST: Final = 30.0  # tests that take more seconds of processor time are left out


@dataclass(frozen=True)
class Suite:
    """Tests that one command runs; {} in it stands for their names."""

    name: str
    command: tuple[str, ...]
    folder: str
    variables: tuple[tuple[str, str], ...] = ()


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
        names = tests or [suite.folder]
        listed = answers.with_suffix(".txt")
        listed.write_text("\n".join(names))
        paths = (str(package), str(HERE), str(self.tree), str(self.tree / "tests"))
        words = [
            *suite.command,
            "-p",
            "rows_of_pytest",
            "-p",
            "no:cacheprovider",
            "-q",
            f"@{listed}",
        ]
        given = {**dict(suite.variables), "PYTHONPATH": os.pathsep.join(paths), **variables}
        given |= {"GMLAKE_MATRIX_ANSWERS": str(answers), "PYTHONDONTWRITEBYTECODE": "1"}
        with answers.with_suffix(".log").open("a") as log:
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
        while True:
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
            if not left or len(found) == before:
                break
        for test in left:  # it cannot even be collected
            found[test] = (True, 0.0, {})
        return found

    def trace(self) -> None:
        """Run every test once, and note what it runs and how long it takes; kept in a file."""
        kept = self.folder / "reached_by_pytest.json"
        if not kept.exists():
            kept.write_text(json.dumps(self._traced()))
        files: defaultdict[str, set[int]] = defaultdict(set)
        for suite, test, took, hits in json.loads(kept.read_text()):
            self.seconds[suite, test] = took
            places = {(file, line) for file, lines in hits.items() for line in lines}
            self.reached[suite, test] = places
            for file, line in places:
                files[file].add(line)
        self.known = {file: sorted(lines) for file, lines in files.items()}

    def _traced(self) -> list[tuple[str, str, float, dict[str, list[int]]]]:
        library = self.folder / "libreach.so"
        command = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(HERE / "reach.c")]
        subprocess.run(command, check=True)
        linked = f"-Wl,--no-as-needed {library} -Wl,--as-needed"
        build = self.build("reach_python", "-O1 -g -fsanitize-coverage=trace-pc", linked)
        package = self.package(build, self.folder / "package_reach")
        reach = Reach(self.folder / "python.map")
        reach.clear()
        table = self.folder / "lines.json"
        numbers = number_lines(package / "gmlake")
        table.write_text(json.dumps({"package": str(package / "gmlake"), "lines": numbers}))
        place_of = {
            number: (f"src/gmlake/{file}", line)
            for file, lines in numbers.items()
            for line, number in lines.items()
        }
        answer = []
        for suite in self.suites:
            found = self.run_all(
                *(
                    suite,
                    self.collect(suite, package),
                    package,
                    self.folder / f"{suite.name}.traced",
                ),
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
            for test, (is_bad, took, ran) in found.items():
                by_file: defaultdict[str, set[int]] = defaultdict(set)
                for module, addresses in ran.items():
                    for address in addresses:
                        if module == "python":
                            file, line = place_of[address]
                            by_file[file].add(line)
                            continue
                        path, line = lines.get((module, address), ("", 0))
                        if Path(path).is_relative_to(self.tree):
                            by_file[str(Path(path).relative_to(self.tree))].add(line)
                seconds = float("inf") if is_bad else took
                places = {file: sorted(numbers) for file, numbers in by_file.items()}
                answer.append((suite.name, test, seconds, places))
        return answer

    def reaching(self, mutant: Mutant, suite: Suite) -> list[str]:
        """Return the tests of a suite that run a line, the quickest first."""
        lines = [line for line in self.known.get(mutant.file, []) if line <= mutant.number + 1]
        if not lines:
            return []
        place = (mutant.file, lines[-1])
        found = [
            (self.seconds[key], key[1])
            for key, hits in self.reached.items()
            if key[0] == suite.name and place in hits and self.seconds[key] < LONGEST
        ]
        return [test for _, test in sorted(found)]


class PyWorker:
    """Runs the tests of pytest that reach a change."""

    def __init__(self, tests: PyTests, plain: Path, number: int) -> None:
        """Copy the build and the package."""
        self.tests, self.number = tests, number
        self.copy = Copy(tests.tree, plain, tests.folder / f"python_worker{number}")
        self.package = tests.package(self.copy.folder, tests.folder / f"package{number}")

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[bool]:
        """Make a change for a while; yield whether it is one."""
        if mutant.file.endswith(".c"):
            with self.copy.changed(mutant) as is_other:
                yield is_other
            return
        path = self.package / mutant.file.removeprefix("src/")
        before = path.read_text()
        text = changed_text(self.tests.tree, mutant)
        try:
            compile(text, mutant.file, "exec", dont_inherit=True)
            path.write_text(text)
            yield True
        except SyntaxError:
            yield False
        finally:
            path.write_text(before)

    def row(
        self, mutant: Mutant, suites: tuple[Suite, ...], most_seconds: float
    ) -> dict[str, Any] | None:
        """Return what noticed a change, by suite; None where it is none.

        most_seconds: of all tests that reach it, the quickest are run until they have taken that.
        """
        answer: dict[str, Any] = {
            "file": mutant.file,
            "line": mutant.number + 1,
            "before": mutant.before.strip(),
            "after": mutant.after.strip(),
        }
        with self.changed(mutant) as is_other:
            if not is_other:
                return None
            for suite in suites:
                reaching = self.tests.reaching(mutant, suite)
                chosen, spent = [], 0.0
                for test in reaching:
                    spent += self.tests.seconds[suite.name, test]
                    if spent > most_seconds:
                        break
                    chosen.append(test)
                killed = self._killed(suite, chosen) if chosen else []
                answer[suite.name] = {
                    "reached": len(reaching),
                    "run": len(chosen),
                    "killed": killed,
                }
        return answer

    def _killed(self, suite: Suite, tests: list[str]) -> list[str]:
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
            suite, tests, self.package, answers, GMLAKE_MATRIX_SECONDS=str(limits)
        )
        return sorted(test for test, (is_bad, _, _) in found.items() if is_bad)
