"""Which tests look at a changed line, the nearest and shortest first, and whether they pass.

C is tested by the programs of tests/c: first those whose name or text speaks of the file, or of
what calls it, then all that are quick, in the order of their times. Then come Python's tests of
FURTHER. A line of Python is tested by the tests in tests/python that ran it; in gmlake.pytorch also
by files of tests/standin that speak of its module.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from resource import RLIMIT_CPU, RUSAGE_CHILDREN, getrusage, setrlimit
from typing import Final

from mutants import ROOT, SUFFIXES, Mutant

WORK: Final = Path(os.environ.get("GMLAKE_MUTATE_FOLDER", ROOT / "build/mutate")).absolute()
TREE: Final = WORK / "tree"
SOURCE: Final = TREE / "src"
PYTHON: Final = Path(sys.executable)
STANDIN_PYTHON: Final = ROOT / ".venv-standin/bin/python"
STANDIN_LIBRARY: Final = ROOT / "build/standin/standin/libcuda.so.1"

# Tests of folders that are changed in no room but their own.
ELSEWHERE: Final = ("planner", "diagnosis", "lab", "driver")
# Python's tests of what is written in C, beside those in C; and those whose names do not tell.
FURTHER: Final = {
    "csrc/torch/": (
        *(
            f"tests/standin/test_{name}.py"
            for name in ("throw", "on_oom", "enabled_memory", "native")
        ),
        *(f"tests/standin/test_{name}.py" for name in ("enabled", "pytorch_native", "streams")),
        *(f"tests/standin/test_{name}.py" for name in ("graphs", "statistics", "processes")),
    ),
    "csrc/lake/sleep": ("tests/python/core/test_sleeping.py", "tests/standin/test_sleeping.py"),
    "csrc/lake/backup": ("tests/python/core/test_sleeping.py", "tests/standin/test_sleeping.py"),
    "csrc/lake/elastic": ("tests/python/core/test_elastic.py", "tests/standin/test_growing.py"),
    "csrc/driver/remap": (
        "tests/python/core/test_sleeping.py",
        "tests/standin/test_exporting.py",
    ),
    "src/gmlake/pytorch/elastic": ("tests/standin/test_growing.py",),
    "src/gmlake/elastic_memory": ("tests/standin/test_growing.py",),
    "csrc/planner/steps/": (
        "tests/python/planner/test_plan_bindings.py",
        "tests/standin/planner/test_autoplan.py",
    ),
}
MOST_PROGRAMS: Final = 5  # of tests/c that count as near
GENERATOR: Final = ROOT / "tests/c/lake/test_lake_stress.c"
GENERATED: Final = ("core", "driver", "lake", "policy")  # folders that its programs run through
MOST_CALLS: Final = 3  # from what a test speaks of to a file
QUICK_SECONDS: Final = 2.0  # other tests may take as long
MOST_FILES: Final = 3  # of tests/python where no folder has the name of a file's
MOST_STANDIN_FILES: Final = 3
SHORT: Final = 5  # names that say little
LEAST_LIMIT: Final = 10.0  # seconds that every change has, and beyond them
SLOWER: Final = 4  # times those of the unchanged code
SETTINGS: Final = {
    "LSAN_OPTIONS": "allocator_may_return_null=1",
    "GMLAKE_STRESS_SECONDS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",  # a change in the same second would not be seen
    "XDG_CACHE_HOME": str(WORK / "cache"),
}
LONG: Final = float("inf")  # a time, of tests that take too long
BAD: Final = -1.0  # a time, of tests that fail without any change
GOOD: Final = (0, 77)  # 77: skipped


class UnfitError(Exception):
    """The unchanged code does not build, or nothing tests it."""


def _copy(source: Path, target: Path) -> None:
    """Make a folder or a file the same as another; what is the same already keeps its time."""
    if source.is_file():
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        return
    for old in target.rglob("*"):
        if old.is_file() and not (source / old.relative_to(target)).exists():
            old.unlink()
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            _copy(path, target / path.relative_to(source))


def _digest(*places: Path, extra: str = "") -> str:
    """Return a name for what is in files and folders."""
    digest = hashlib.sha256(extra.encode())
    for place in places:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.suffix in (*SUFFIXES, ".h"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def crowd() -> float:
    """Return how many times as long things take, for all that runs on this machine."""
    return max(1.0, max(os.getloadavg()) / (os.cpu_count() or 1))


def run(
    command: tuple[str, ...], seconds: float, cpu_seconds: float = 3600, **variables: str
) -> tuple[int | None, str]:
    """Return the exit code and what was printed; None: it did not end in time, and was ended.

    cpu_seconds: of each process, however many others there are.
    """
    most = int(cpu_seconds) + 1
    with subprocess.Popen(
        command,
        env={**os.environ, **SETTINGS, **variables},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: setrlimit(RLIMIT_CPU, (most, most + 5)),  # noqa: PLW1509 (no threads)
        text=True,
        errors="replace",
    ) as running:
        try:
            text, _ = running.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(running.pid, signal.SIGKILL)  # with all that it started
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, running.communicate()[0]
        is_late = running.returncode in (-signal.SIGXCPU, -signal.SIGPROF)
        return None if is_late else running.returncode, text


@dataclass(frozen=True)
class Check:
    """Tests that one process runs. seconds: of CPU time, with the unchanged code."""

    name: str
    command: tuple[str, ...]
    variables: dict[str, str]
    seconds: float = 0.0

    def verdict(self) -> str:
        """Return "" where they pass, else what became of them."""
        limit = LEAST_LIMIT + SLOWER * self.seconds
        code, text = run(self.command, 3 * crowd() * limit, limit, **self.variables)
        if code in GOOD:
            return ""
        failed = re.findall(r"^(?:FAILED|ERROR)S? (\S+)", text, re.MULTILINE)
        return f"{self.name} {'timed out' if code is None else ' '.join(failed[:1])}".strip()


def timed(check: Check, longest: float) -> Check:
    """Return it with the time that it takes; without any change. LONG or BAD: it does not count."""
    begin = getrusage(RUSAGE_CHILDREN)
    code, text = run(check.command, 5 * crowd() * longest, longest, **check.variables)
    end = getrusage(RUSAGE_CHILDREN)
    took = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    if code is not None and code not in GOOD:
        print(
            f"left out: {check.name}, which fails without any change:\n{text[-1500:]}", flush=True
        )
        took = BAD
    elif code is None or took > longest:
        print(f"left out: {check.name}, which takes more than {longest:g} s", flush=True)
        took = LONG
    return replace(check, seconds=took)


def _installed() -> Path:
    """Return the folder of gmlake in this environment."""
    spec = importlib.util.find_spec("gmlake")
    return Path(spec.origin).parent if spec and spec.origin else Path("-")


@cache
def _names(file: str) -> set[str]:
    """Return the names that a file gives to others."""
    text = (ROOT / file).read_text()
    if not file.endswith(".py"):
        return set(re.findall(r"^(?!static )\w[\w *]*?\b(gml_\w+)\(", text, re.MULTILINE))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {node.name for node in ast.parse(text).body if isinstance(node, kinds)}
    public = {name for name in found if not name.startswith("_") and len(name) > SHORT}
    return public | {Path(file).stem}


@cache
def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def nearness(file: str, test: Path, *more: Path) -> tuple[bool, int]:
    """Return whether a test has the file's name, and how often it speaks of it."""
    stem = Path(file).stem
    stems = {stem, stem.removesuffix("er"), stem.rstrip("s")}
    text = "".join(map(_text, (test, *more)))
    spoken = sum(len(re.findall(rf"\b{name}\b", text)) for name in _names(file))
    return any(f"_{one}" in test.stem for one in stems), spoken


def near_programs(file: str) -> list[Path]:
    """Return the C tests of a file's folder, and those that speak of it, the nearest first.

    Where none speaks of it, of what calls it.
    """
    programs = list((ROOT / "tests/c").rglob("test_*.c"))
    folder = Path(file).parts[1]
    files = [file]
    for _ in range(MOST_CALLS):
        spoken = {one: max(nearness(name, one)[1] for name in files) for one in programs}
        if any(spoken.values()):
            break
        called = "|".join(rf"\b{name}\(" for one in files for name in _names(one)) or "$."
        sources = [
            path for path in (ROOT / "csrc").rglob("*.c") if re.search(called, path.read_text())
        ]
        files = sorted({*files, *(str(path.relative_to(ROOT)) for path in sources)})
    own = [one for one in programs if one.parent.name == folder]
    is_small = len(own) < MOST_PROGRAMS

    def score(program: Path) -> tuple[bool, bool, int]:
        has_name = program in own and nearness(file, program)[0]
        return has_name, is_small and program in own, spoken[program]

    found = sorted((one for one in programs if any(score(one))), key=score, reverse=True)
    near = found[:MOST_PROGRAMS]
    return near if folder not in GENERATED or GENERATOR in near else [*near, GENERATOR]


@dataclass
class Tests:
    """What tests the files of some mutants. All times and lines are of the unchanged code."""

    longest: float
    jobs: int
    _near: dict[str, list[Path]] = field(default_factory=dict)
    _targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _programs: dict[Path, Check] = field(default_factory=dict)
    _files: dict[str, Check | None] = field(default_factory=dict)
    _lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def prepare(self, files: list[str]) -> None:
        """Copy the code; build what changes of the files need; run their tests once."""
        for name in ("csrc", "lab", "tests/c", "src", "CMakeLists.txt", "pyproject.toml"):
            _copy(ROOT / name, TREE / name)
        native, adapter = TREE / "csrc/torch/native", SOURCE / "gmlake/adapter"
        shutil.rmtree(adapter, ignore_errors=True)
        (adapter / "cuda").mkdir(parents=True)
        found = [
            path.relative_to(native) for path in native.rglob("*") if path.suffix in (".cpp", ".h")
        ]
        for part in found:
            (adapter / part).symlink_to(native / part)
        (adapter / "gmlake.h").symlink_to(TREE / "csrc/include/gmlake.h")
        in_c = [file for file in files if file.endswith(".c")]
        if in_c:
            self._time_programs(in_c)
        self._link_core(_installed())
        for extension in _installed().glob("*/_*.so"):  # of annexes
            place = SOURCE / "gmlake" / extension.relative_to(_installed())
            place.unlink(missing_ok=True)
            place.symlink_to(extension)
        self._trace([file for file in files if file.endswith(".py")])

    @staticmethod
    def _link_core(folder: Path) -> None:
        """Let the copy in Python use the extension that a folder has."""
        cores = list(folder.glob("_core*.so"))
        if not cores:
            raise UnfitError("the extension gmlake._core is not there: run `make test-python` once")
        for old in (SOURCE / "gmlake").glob("_core*.so"):
            old.unlink()
        (SOURCE / "gmlake" / cores[0].name).symlink_to(cores[0])

    # ---- C ------------------------------------------------------------------------------------

    def _configure(self, name: str, *options: str) -> None:
        """Build in a way that a change relinks one library alone."""
        command = ("cmake", "-S", str(TREE), "-B", str(WORK / name), "-DGMLAKE_ONE_LIBRARY=ON")
        code, text = run((*command, *options), 3600)
        if code:
            raise UnfitError(f"cmake fails\n{text[-1500:]}")

    def _build_unchanged(self, name: str, *targets: str) -> None:
        self._targets[name] = targets
        if not self._build(name):
            raise UnfitError(f"the unchanged code does not build in {WORK / name}")

    def _build(self, name: str) -> bool:
        """Return whether it builds."""
        command = ("cmake", "--build", str(WORK / name), "--parallel", str(self.jobs))
        return run((*command, "--target", *self._targets[name]), 3600)[0] == 0

    def _build_python(self) -> None:
        """Build the extension of Python from what is in C."""
        if "python" not in self._targets:
            self._configure("python", "-DGMLAKE_PYTHON=ON", f"-DPython_EXECUTABLE={PYTHON}")
        self._build_unchanged("python", "_core")
        self._link_core(WORK / "python/csrc/python")

    def _time_programs(self, files: list[str]) -> None:
        """Build and run the programs; those that are near to no file count where they are quick."""
        folders = {Path(file).parts[1] for file in files}
        self._near = {file: near_programs(file) for file in files}
        near = set().union(*self._near.values())
        self._configure("c", "-DGMLAKE_TESTS=ON", "-DGMLAKE_SANITIZE=leak")
        _, text = run(("ctest", "--test-dir", str(WORK / "c"), "--show-only=json-v1"), 600)
        sources = {path.stem: path for path in (ROOT / "tests/c").rglob("test_*.c")}
        tests = {
            sources[test["name"]]: {one["name"]: one["value"] for one in test["properties"]}
            for test in json.loads(text)["tests"]
        }
        elsewhere = set(ELSEWHERE) - folders
        wanted = [one for one in tests if one in near or one.parent.name not in elsewhere]
        self._build_unchanged("c", *(source.stem for source in wanted))
        times, digest = WORK / "times.json", _digest(ROOT / "csrc", ROOT / "tests/c")
        known = json.loads(times.read_text()) if times.exists() else {}
        if known.get("digest") != digest:  # what is long stays long
            known = {name: took for name, took in known.items() if took == LONG}
        known["digest"] = digest
        for source in wanted:
            variables = dict(one.split("=", 1) for one in tests[source].get("ENVIRONMENT", ()))
            program = str(WORK / "c/tests/c" / source.stem)
            has_name = any(nearness(file, source)[0] for file in files)
            limit = self.longest / 3 if source in near else QUICK_SECONDS
            limit = self.longest if source in near and has_name else limit
            check = Check(source.stem, (program,), variables)
            key = f"{source.stem} in {limit:g} s"
            if key not in known:
                known[key] = timed(check, limit).seconds
                times.write_text(json.dumps(known))
            if known[key] not in (LONG, BAD):
                self._programs[source] = replace(check, seconds=known[key])

    def _further(self, file: str) -> tuple[str, ...]:
        return next((tests for part, tests in FURTHER.items() if file.startswith(part)), ())

    def _of_c(self, file: str) -> list[Check]:
        near = set(self._near[file])
        there = sorted(self._programs, key=lambda source: self._programs[source].seconds)
        ordered = sorted(there, key=lambda source: source not in near)
        quick = [source for source in ordered if self._programs[source].seconds < QUICK_SECONDS]
        return [self._programs[source] for source in ordered if source in near or source in quick]

    # ---- Python -------------------------------------------------------------------------------

    def _pytest(self, name: str, *arguments: str) -> Check:
        """Return the tests that arguments name, on the stand-in where they are of it."""
        options = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments)
        variables = {"PYTHONPATH": str(SOURCE)}
        if not name.startswith("tests/standin"):
            return Check(name, (str(PYTHON), *options), variables)
        variables |= {
            "GMLAKE_TEST_CHECK_ORDER": "1",
            "GMLAKE_STANDIN_LIBRARY": str(STANDIN_LIBRARY),
        }
        standin = ("-m", "tests.standin", "--devices", "2", "--capacity", "80GiB")
        return Check(name, (str(STANDIN_PYTHON), *standin, *options), variables)

    def _whole_files(self, names: tuple[str, ...]) -> list[Check]:
        """Return those that pass; each is timed when it is first wanted."""
        for name in names:
            if name in self._files:
                continue
            is_there = (ROOT / name).exists()
            if name.startswith("tests/standin"):
                is_there = is_there and STANDIN_LIBRARY.exists() and STANDIN_PYTHON.exists()
            if not is_there:
                print(f"left out: {name}, which cannot run here (make standin)", flush=True)
                self._files[name] = None
                continue
            check = timed(self._pytest(name, name), self.longest)
            self._files[name] = check if check.seconds not in (LONG, BAD) else None
        return [check for name in names if (check := self._files[name])]

    def _near_files(self, file: str, folder: str, most: int) -> tuple[str, ...]:
        """Return test files that speak of a module, the nearest first."""
        places = [
            path
            for path in (ROOT / folder).rglob("test_*.py")
            if not {"house", "gpu", "operators"} & set(path.parts)
        ]
        programs = ROOT / "tests/standin/programs"
        scores = {
            path: nearness(file, path, programs / f"{path.stem.removeprefix('test_')}.py")
            for path in places
        }
        has_name = any(score[0] for score in scores.values())
        near = [path for path in places if scores[path][0] or (scores[path][1] and not has_name)]
        near.sort(key=scores.__getitem__)
        return tuple(str(path.relative_to(ROOT)) for path in reversed(near[-most:]))

    def _trace(self, files: list[str]) -> None:
        """Ask the tests near to some files which of their lines they run."""
        wanted: set[str] = set()
        for file in files:
            same = sorted((ROOT / "tests/python" / Path(file).parent.name).glob("test_*.py"))
            own = tuple(str(path.relative_to(ROOT)) for path in same)
            wanted |= set(own or self._near_files(file, "tests/python", MOST_FILES))
        if not wanted:
            return
        answers = WORK / "lines"
        answers.mkdir(exist_ok=True)
        sources = [ROOT / "src/gmlake", ROOT / "tests/mutant_lines.py"]
        known = {
            name: answers / f"{_digest(*sources, ROOT / name, extra=' '.join(files))}.json"
            for name in sorted(wanted)
        }
        text = ""
        if unknown := [name for name, path in known.items() if not path.exists()]:
            check = self._pytest("tests/python", "-p", "mutant_lines", "--maxfail=1000", *unknown)
            variables = {
                "PYTHONPATH": os.pathsep.join((str(SOURCE), str(ROOT / "tests"))),
                "GMLAKE_MUTANT_FILES": os.pathsep.join(str(TREE / file) for file in files),
                "GMLAKE_MUTANT_ANSWERS": json.dumps({name: str(known[name]) for name in unknown}),
            }
            _, text = run(check.command, 7200, **variables)
        for name, path in known.items():
            if not path.exists():
                raise UnfitError(f"{name} does not run with unchanged code\n{text[-1500:]}")
            found = json.loads(path.read_text())
            self._seconds |= found["seconds"]
            for file, line, tests in found["lines"]:
                one = self._lines.setdefault(str(Path(file).relative_to(TREE)), {})
                one.setdefault(line, set()).update(tests)
        for name in (name for name, seconds in self._seconds.items() if seconds < 0):
            print(f"left out: {name}, which without any change fails", flush=True)

    def _of_line(self, mutant: Mutant) -> list[Check]:
        """Return the tests in tests/python that run a line, the shortest first."""
        lines = self._lines.get(mutant.file, {})
        begin, end = _statement((ROOT / mutant.file).read_text(), mutant.number + 1)
        hits = set().union(*(lines.get(line, ()) for line in range(begin, end + 1)))
        if not hits or "" in hits:  # it is run at the import alone, or in other processes
            hits = set().union(*lines.values()) - {""}
        good = [test for test, seconds in self._seconds.items() if 0 <= seconds < self.longest]
        exact = [test for test in good if test in hits]
        whole = [test for test in good if test not in hits and test.split("::")[0] in hits]
        checks = []
        for number, tests in enumerate((exact, whole)):
            if tests:
                tests.sort(key=self._seconds.__getitem__)
                listed = WORK / f"tests{number}.txt"
                listed.write_text("\n".join(tests))
                seconds = sum(self._seconds[test] for test in tests)
                one = self._pytest("tests/python", "-p", "mutant_limits", f"@{listed}")
                longest = LEAST_LIMIT + SLOWER * self._seconds[tests[-1]]
                variables = {
                    "PYTHONPATH": os.pathsep.join((str(SOURCE), str(ROOT / "tests"))),
                    "GMLAKE_MUTANT_SECONDS": str(longest),
                }
                checks.append(Check("", one.command, variables, seconds))
        return checks

    # ---- a mutant -----------------------------------------------------------------------------

    def _first(self, mutant: Mutant) -> list[Check]:
        """Return the nearest tests of a mutant, in the order in which they are run."""
        if mutant.file.endswith(".py"):
            return self._of_line(mutant)
        return self._of_c(mutant.file) if mutant.file.endswith(".c") else []

    def _then(self, mutant: Mutant) -> list[Check]:
        """Return those that come where the first notice nothing. pre: nothing is changed."""
        file = mutant.file
        if not file.endswith(".py"):
            names = self._further(file)
            if names and file.endswith(".c"):
                self._build_python()
            return self._whole_files(names)
        if "/pytorch/" in file or "elastic_memory" in file:
            near = self._near_files(file, "tests/standin", MOST_STANDIN_FILES)
            return self._whole_files(self._further(file) or near)
        return []

    def verdict(self, mutant: Mutant) -> str:
        """Return what noticed a change, "" where nothing did. Raises ValueError: no such code."""
        path = TREE / mutant.file
        whole = path.read_text()
        lines = whole.split("\n")
        lines[mutant.number] = mutant.after
        changed = "\n".join(lines)
        for is_first, find in ((True, self._first), (False, self._then)):
            checks = find(mutant)
            path.write_text(changed)
            try:
                if is_first and not self._compiles(mutant, changed):
                    raise ValueError("it does not compile")
                if checks and not is_first and mutant.file.endswith(".c"):
                    self._build("python")
                for check in checks:
                    if said := check.verdict():
                        return said
            finally:
                path.write_text(whole)
        return ""

    def _compiles(self, mutant: Mutant, text: str) -> bool:
        if mutant.file.endswith(".py"):
            try:
                compile(text, mutant.file, "exec", dont_inherit=True)
            except SyntaxError:
                return False
            return True
        if mutant.file.endswith(".cpp"):
            program = "from gmlake.pytorch import adapter; adapter.find()"
            return run((str(STANDIN_PYTHON), "-c", program), 3600, PYTHONPATH=str(SOURCE))[0] == 0
        return self._build("c")


def _statement(text: str, line: int) -> tuple[int, int]:
    """Return the lines, from 1, of the smallest statement that has a line, without its body."""
    begin, end = line, line
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            inner = getattr(node, "body", None)  # children come later
            begin = node.lineno
            end = max(begin, inner[0].lineno - 1) if inner else node.end_lineno or begin
            if not begin <= line <= end:
                begin = end = line
    return begin, end


if __name__ == "__main__":
    sys.exit("python tests/mutate.py")
