"""The tests of C: which lines each of them runs, and which changes of the code it notices.

Every TEST is run alone, in a process of its own. The libraries are built once; for a change one
file is compiled and what has its object is linked again, in a copy of the build for each worker.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from bisect import bisect_right
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from pathlib import Path
from queue import SimpleQueue
from threading import Timer
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mutants import Mutant

HERE: Final = Path(__file__).parent
SLOTS: Final = 16  # as in reach.c
PATH_BYTES: Final = 256
MAP_BYTES: Final = 8 << 20
SKIPPED: Final = 77
TRACED_AT_ONCE: Final = 2
LEAST_SECONDS: Final = 0.5  # of processor time that a test has under a change, and beyond that
MOST_LATE: Final = 5  # tests that a change lets run out of time, after which the others are not run
SLOWER: Final = 5  # times what it took without one
TEST: Final = re.compile(r"^(?:TEST\((\w+)\)|\s+(?:RUN|FAULT)\((\w+)\);)", re.MULTILINE)


@dataclass(frozen=True)
class CTest:
    """One TEST of a program; name "": all of a program."""

    program: str
    name: str

    def __str__(self) -> str:
        """Return what rows call it."""
        return f"{self.program}::{self.name}" if self.name else self.program


def run_limited(
    command: list[str], variables: dict[str, str], seconds: float, folder: Path
) -> tuple[int | None, float]:
    """Return the exit code, None where it ran out of processor time, and that time."""
    most = ceil(seconds)
    child = subprocess.Popen(
        ["prlimit", f"--cpu={most}:{most + 1}", "--core=0:0", *command],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    late = Timer(20 * most + 10, partial(end_group, child.pid))  # it waits for what never comes
    late.start()
    try:
        _, status, used = os.wait4(child.pid, 0)
    finally:
        late.cancel()
        end_group(child.pid)
    child.returncode = os.waitstatus_to_exitcode(status)
    is_late = child.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
    return None if is_late else child.returncode, used.ru_utime + used.ru_stime


def end_group(group: int) -> None:
    """Kill a process with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class Reach:
    """The file that reach.c writes, and where its addresses are in the sources."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.path = path
        path.touch()

    def clear(self) -> None:
        """Forget what ran."""
        with self.path.open("r+b") as file:
            file.truncate(0)
            file.truncate(SLOTS * (PATH_BYTES + MAP_BYTES))

    def wipe(self) -> None:
        """Forget what ran, in processes that go on, too."""
        with self.path.open("r+b") as file:
            for _, begin, data in self._written(file.fileno()):
                os.pwrite(file.fileno(), bytes(len(data)), begin)

    def found(self) -> list[tuple[str, int]]:
        """Return what ran: modules and addresses in them; numbers, in that of Python."""
        hits = []
        with self.path.open("rb") as file:
            table = os.pread(file.fileno(), SLOTS * PATH_BYTES, 0)
            for slot, begin, data in self._written(file.fileno()):
                name = table[slot * PATH_BYTES : (slot + 1) * PATH_BYTES].rstrip(b"\0").decode()
                base = begin - SLOTS * PATH_BYTES - slot * MAP_BYTES
                name = "python" if slot == SLOTS - 1 else name
                hits += [(name, base + match.start()) for match in re.finditer(b"\1", data)]
        return hits

    @staticmethod
    def _written(file: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield slots, places in the file and bytes; what was never written is passed over."""
        for slot in range(SLOTS):
            begin, end = (SLOTS * PATH_BYTES + at * MAP_BYTES for at in (slot, slot + 1))
            while begin < end:
                try:
                    begin = os.lseek(file, begin, os.SEEK_DATA)
                except OSError:
                    return
                if begin >= end:
                    break
                stop = min(os.lseek(file, begin, os.SEEK_HOLE), end)
                yield slot, begin, os.pread(file, stop - begin, begin)
                begin = stop


def lines_of(hits: set[tuple[str, int]]) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the files and lines of addresses in modules."""
    by_module: defaultdict[str, list[int]] = defaultdict(list)
    for module, address in hits:
        by_module[module].append(address)
    found = {}
    for module, addresses in by_module.items():
        if not Path(module).exists():  # a test's own copy
            continue
        said = subprocess.run(
            ["addr2line", "-e", module],
            input="".join(f"{address - 1:#x}\n" for address in addresses),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.splitlines()
        for address, place in zip(addresses, said, strict=True):
            file, _, line = place.split(" ")[0].rpartition(":")
            if line.isdigit():
                found[module, address] = (file, int(line))
    return found


def configure_and_build(tree: Path, build: Path, options: list[str]) -> None:
    """Let CMake do both; raises CalledProcessError."""
    commands = (["-S", str(tree), "-B", str(build), *options], ["--build", str(build), "-j2"])
    for words in commands:
        subprocess.run(["cmake", *words], check=True, stdout=subprocess.DEVNULL)


def linked_with_reach(folder: Path) -> str:
    """Compile reach.c into a folder; return what a linker wants, so that it is loaded."""
    library = folder / "libreach.so"
    command = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(HERE / "reach.c")]
    subprocess.run(command, check=True)
    return f"-Wl,--no-as-needed {library} -Wl,--as-needed"


def built_once(plain: Path, build: Callable[[str, str], Path]) -> Path:
    """Return the folder of a build without a change, which is made unless it is there."""
    if not (plain / "built").exists():
        build(plain.name, "-O1")
        (plain / "built").touch()
    return plain


def line_before(known: dict[str, list[int]], mutant: Mutant) -> tuple[str, int] | None:
    """Return the last line that any test runs, of those up to a change; None where none is."""
    lines = known.get(mutant.file, [])
    at = bisect_right(lines, mutant.number + 1)
    return (mutant.file, lines[at - 1]) if at else None


@dataclass
class Program:
    """A test program of a build."""

    name: str
    path: Path
    variables: dict[str, str]
    tests: list[CTest]


def programs_of(build: Path, tree: Path) -> list[Program]:
    """Return the programs that ctest knows."""
    said = subprocess.run(
        ["ctest", "--test-dir", str(build), "--show-only=json-v1"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    sources = {
        f"standin_{path.stem}" if path.parent.name == "standin" else path.stem: path
        for path in (tree / "tests/c").rglob("test_*.c")
    }
    found = []
    for test in json.loads(said)["tests"]:
        name = test["name"]
        properties = {one["name"]: one["value"] for one in test["properties"]}
        variables = dict(one.split("=", 1) for one in properties.get("ENVIRONMENT", ()))
        text = sources[name].read_text()
        names = [first or second for first, second in TEST.findall(text)]
        tests = [CTest(name, one) for one in dict.fromkeys(names)] or [CTest(name, "")]
        found.append(Program(name, Path(test["command"][0]), variables, tests))
    return found


@dataclass
class CTests:
    """All of them, in builds below a folder. longest: tests that take more seconds are left out."""

    tree: Path
    folder: Path
    packages: str
    longest: float = 3.0
    reached: dict[CTest, set[tuple[str, int]]] = field(default_factory=dict)
    seconds: dict[CTest, float] = field(default_factory=dict)
    known: dict[str, list[int]] = field(default_factory=dict)

    def build(self, name: str, flags: str, linked: str = "") -> Path:
        """Configure and build everything; return the folder."""
        build = self.folder / name
        options = [
            *("-DGMLAKE_TESTS=ON", "-DGMLAKE_ONE_LIBRARY=ON", "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_C_FLAGS_RELEASE={flags}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
            *(f"-DCMAKE_EXE_LINKER_FLAGS={linked}", f"-DCMAKE_SHARED_LINKER_FLAGS={linked}"),
            f"-DGMLAKE_STANDIN_PACKAGES={self.packages}",
        ]
        configure_and_build(self.tree, build, options)
        return build

    def trace(self) -> None:
        """Run each test once, and note what it runs and how long it takes; kept in a file."""
        kept = self.folder / "reached.json"
        if not kept.exists():
            kept.write_text(json.dumps(self._traced()))
        files: defaultdict[str, set[int]] = defaultdict(set)
        for program, name, took, hits in json.loads(kept.read_text()):
            test = CTest(program, name)
            self.seconds[test] = took
            self.reached[test] = {(file, line) for file, lines in hits.items() for line in lines}
            for file, line in self.reached[test]:
                files[file].add(line)
        self.known = {file: sorted(lines) for file, lines in files.items()}

    def _traced(self) -> list[tuple[str, str, float, dict[str, list[int]]]]:
        flags = "-O0 -g -fsanitize-coverage=trace-pc"
        build = self.build("reach", flags, linked_with_reach(self.folder))
        programs = programs_of(build, self.tree)
        free: SimpleQueue[Reach] = SimpleQueue()
        for number in range(TRACED_AT_ONCE):
            free.put(Reach(self.folder / f"reach{number}.map"))

        def one(program: Program, test: CTest) -> tuple[float, list[tuple[str, int]]]:
            reach = free.get()
            reach.clear()
            variables = {**program.variables, "GMLAKE_REACH": str(reach.path)}
            variables |= {"GMLAKE_TEST_ONLY": test.name} if test.name else {}
            code, took = run_limited([str(program.path)], variables, 2 * self.longest, self.folder)
            hits = reach.found()
            free.put(reach)
            print(f"{test}: {code}, {took:.2f} s, {len(hits)} blocks", flush=True)
            return took if code in (0, SKIPPED) else float("inf"), hits

        every = [(program, test) for program in programs for test in program.tests]
        with ThreadPoolExecutor(TRACED_AT_ONCE) as threads:
            found = list(threads.map(lambda pair: one(*pair), every))
        lines = lines_of({hit for _, hits in found for hit in hits})
        answer = []
        for (program, test), (took, hits) in zip(every, found, strict=True):
            by_file: defaultdict[str, set[int]] = defaultdict(set)
            for file, line in filter(None, map(lines.get, hits)):
                if Path(file).is_relative_to(self.tree / "csrc"):
                    by_file[str(Path(file).relative_to(self.tree))].add(line)
            places = {file: sorted(numbers) for file, numbers in by_file.items()}
            answer.append((program.name, test.name, took, places))
        return answer

    def took(self) -> dict[str, float]:
        """Return the seconds of each test; those of one that is never run are infinite."""
        return {
            str(test): took if took < self.longest else inf for test, took in self.seconds.items()
        }

    def worker(self, number: int) -> CWorker:
        """Return what runs them under a change."""
        return CWorker(self, built_once(self.folder / "plain", self.build), number)

    def reaching(self, mutant: Mutant) -> list[CTest]:
        """Return the tests that run a line, the quickest first; they all took less than longest."""
        place = line_before(self.known, mutant)
        found = [
            test
            for test, hits in self.reached.items()
            if place in hits and self.seconds[test] < self.longest
        ]
        return sorted(found, key=self.seconds.__getitem__)


class Copy:
    """A copy of a build, in which one change at a time is made."""

    def __init__(self, tree: Path, plain: Path, folder: Path) -> None:
        """Make the copy, unless it is there."""
        if not folder.exists():
            shutil.copytree(plain, folder, symlinks=True)
        self.folder, self.plain, self._tree = folder, plain, tree
        units = json.loads((plain / "compile_commands.json").read_text())
        self._compiled = {
            str(Path(unit["file"]).relative_to(tree)): unit
            for unit in units
            if Path(unit["file"]).is_relative_to(tree)
        }
        self._links: defaultdict[str, list[tuple[list[str], Path, str]]] = defaultdict(list)
        for script in plain.rglob("link.txt"):
            place = script.parent.parent.parent.relative_to(plain)
            words = shlex.split(script.read_text().splitlines()[-1])
            if Path(words[0]).name in ("ar", "ranlib", "gcc-ranlib", "gcc-ar"):
                continue
            output = os.path.normpath(place / words[words.index("-o") + 1])
            words = [word.replace(str(plain), str(folder)) for word in words]
            for made in {os.path.normpath(place / word) for word in words if word.endswith(".o")}:
                self._links[os.path.relpath(made, folder) if made.startswith("/") else made].append(
                    (words, place, output)
                )

    def has(self, file: str) -> bool:
        """Return whether it builds a file."""
        return file in self._compiled

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[bool]:
        """Make a change for a while; yield whether it is one: it compiles, to other code."""
        unit = self._compiled[mutant.file]
        words = shlex.split(unit["command"])
        object_at = Path(unit["directory"]) / words[words.index("-o") + 1]
        made = str(object_at.relative_to(self.plain))
        targets = self._links[made]
        try:
            is_other = self._compile(mutant, words, made)
            for command, place, _ in targets if is_other else ():
                subprocess.run(
                    command, cwd=self.folder / place, check=True, stderr=subprocess.DEVNULL
                )
            yield is_other
        finally:
            for path in (made, *(output for _, _, output in targets)):
                # A new file: processes may have the old one mapped.
                (self.folder / path).unlink(missing_ok=True)
                shutil.copy2(self.plain / path, self.folder / path)

    def _compile(self, mutant: Mutant, words: list[str], made: str) -> bool:
        source = self.folder / f"mutant{Path(mutant.file).suffix}"
        source.write_text(changed_text(self._tree, mutant))
        words[words.index("-o") + 1] = str(self.folder / made)
        words[words.index("-c") + 1] = str(source)
        words += ["-iquote", str((self._tree / mutant.file).parent), "-w", "-Wno-error"]
        if subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode:
            return False
        return self._code(self.folder / made) != self._code(self.plain / made)

    @staticmethod
    def _code(path: Path) -> bytes:
        command = ["objdump", "-d", "-r", "-s", "--no-show-raw-insn"]
        sections = [word for name in (".text", ".rodata", ".data") for word in ("-j", name)]
        done = subprocess.run([*command, *sections, str(path)], capture_output=True, check=False)
        return done.stdout.split(b"\n", 3)[-1]


def changed_text(tree: Path, mutant: Mutant) -> str:
    """Return a file's text with a change."""
    lines = (tree / mutant.file).read_text().split("\n")
    lines[mutant.number] = mutant.after
    return "\n".join(lines)


class CWorker:
    """Runs the tests of C that reach a change, in a copy of the build."""

    def __init__(self, tests: CTests, plain: Path, number: int) -> None:
        """Copy it."""
        self.tests = tests
        self.copy = Copy(tests.tree, plain, tests.folder / f"worker{number}")
        self._programs = {one.name: one for one in programs_of(plain, tests.tree)}

    def has(self, mutant: Mutant) -> bool:
        """Return whether a test of C might notice."""
        return self.copy.has(mutant.file)

    def changed(self, mutant: Mutant) -> AbstractContextManager[bool]:
        """Make a change for a while."""
        return self.copy.changed(mutant)

    def killed(
        self, mutant: Mutant, *, most: float = inf, is_whole: bool = True
    ) -> tuple[int, int, list[str]]:
        """Return how many reach a change, how many were run, and which noticed it.

        is_whole: by every test that reaches its line; else by the first that notices.
        """
        reaching = self.tests.reaching(mutant)
        killed: list[str] = []
        run, spent, late = 0, 0.0, 0
        for test in reaching:
            if late == MOST_LATE or spent > most or (killed and not is_whole):
                break
            code, took = self._run(test)
            run, spent = run + 1, spent + took
            late += code is None
            killed += [] if code in (0, SKIPPED) else [str(test)]
        return len(reaching), run, killed

    def _run(self, test: CTest) -> tuple[int | None, float]:
        program = self._programs[test.program]
        plain, folder = str(self.copy.plain), str(self.copy.folder)
        variables = {
            name: value.replace(plain, folder) for name, value in program.variables.items()
        }
        known = variables.get("LD_LIBRARY_PATH", "")
        variables["LD_LIBRARY_PATH"] = f"{known}:{folder}" if known else folder
        if test.name:
            variables["GMLAKE_TEST_ONLY"] = test.name
        limit = LEAST_SECONDS + SLOWER * self.tests.seconds[test]
        path = str(program.path).replace(plain, folder)
        return run_limited([path], variables, limit, self.copy.folder)
