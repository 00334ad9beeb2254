"""Build and test the allocator with its annexes deleted.

    python tests/alone.py [--quick] [--jobs N]

An annex is a folder of csrc with an annex.cmake, or of src/gmlake with an annex.py. What git knows
is copied to build/alone without folders of its name, built there for C and for Python, and tested
by the tests that are left. Then no symbol of it may be in what was built, and no word of it in csrc
and src: its public names, or the regular expression in tests/python/NAME/words.txt. Packages come
from the environment that runs this; nothing is fetched.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TREE: Final = ROOT / "build/alone/tree"
BUILD: Final = ROOT / "build/alone/c"
SITE: Final = ROOT / "build/alone/site"
ENVIRONMENT: Final = ROOT / "build/alone/venv"

NAMES_ANNEXES: Final = "src/gmlake/annexes.py"
"""The one file of the allocator that may name them."""

WHOLE: Final = ("documentation", "results", "counted", "mutants", "promises")
"""Tests of the house that read what is about the whole: documents, benchmarks, tools."""

ABOUT_THE_WHOLE: Final = (
    "test_house.py::test_documents_name_files_that_are_there",
    "test_layers.py::test_who_is_excepted_is_there_and_needs_it",
)
"""Tests of that kind in other files of the house."""

LONG_IN_C: Final = "faults|stress|lake_(sleep|elastic|pools)|stitch|contract|cost_model"
"""C tests that take more than a few seconds; left out in a hurry, as they run in `make test-c`."""

QUICK_IN_PYTHON: Final = ("core/test_lake.py", "commands", "trace", "house", "pictures")
"""What is tested of Python in a hurry."""


def annexes() -> set[str]:
    """Return the names of the annexes, which are those of their folders."""
    found = (*ROOT.glob("csrc/*/annex.cmake"), *ROOT.glob("src/gmlake/*/annex.py"))
    return {path.parent.name for path in found}


def copy_tree(names: set[str]) -> list[Path]:
    """Make the copy and return its files; what is as it was stays, so that less is built again."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kept = [Path(name) for name in listed.split("\0") if name and not names & set(Path(name).parts)]
    kept = [path for path in kept if (ROOT / path).is_file()]
    for path in TREE.rglob("*"):
        if path.is_file() and path.relative_to(TREE) not in set(kept):
            path.unlink()
    for path in kept:
        source, target = ROOT / path, TREE / path
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return kept


def run(*command: str | Path, cwd: Path = TREE) -> bool:
    """Run a command and say whether it went well."""
    return subprocess.run([str(word) for word in command], cwd=cwd, check=False).returncode == 0


def build(cmake: str, jobs: int) -> bool:
    """Build the library, the C tests and the package; the last goes to a folder of its own."""
    options = ("-DGMLAKE_WERROR=ON", "-DGMLAKE_TESTS=ON", "-DGMLAKE_PYTHON=ON")
    shutil.rmtree(SITE, ignore_errors=True)
    built = (
        run(cmake, "-S", TREE, "-B", BUILD, *options, f"-DPython_EXECUTABLE={sys.executable}")
        and run(cmake, "--build", BUILD, "--parallel", str(jobs), "--", "--quiet")
        and run(cmake, "--install", BUILD, "--prefix", SITE)
    )
    if built:
        shutil.copytree(TREE / "src/gmlake", SITE / "gmlake", dirs_exist_ok=True)
    return built


def make_environment() -> Path:
    """Return the Python of an environment that has the package alone, and else what we have."""
    venv.create(ENVIRONMENT, clear=True)
    python = ENVIRONMENT / "bin/python"
    question = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True)
    ours = sysconfig.get_path("purelib")
    Path(said.stdout.strip(), "alone.pth").write_text(f"{SITE}\n{ours}\n", encoding="utf-8")
    script = ENVIRONMENT / "bin/gmlake"
    script.write_text(f"#!{python}\nfrom gmlake.commands import main\nraise SystemExit(main())\n")
    script.chmod(0o755)
    return python


def symbols_left(names: set[str]) -> list[str]:
    """Return functions of annexes that something built without them has."""
    files = [path for name in names for path in (ROOT / "csrc" / name).rglob("*.c")]
    own = {
        function
        for file in files
        for function in re.findall(
            r"^(?!static )\w[\w *]*?\b(gml_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    built = [*SITE.rglob("*.so*"), *BUILD.glob("*.so*")]
    found = []
    for path in built:
        command = [shutil.which("nm") or "nm", path]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found += [f"{path.name}: {name}" for name in own & set(said.split())]
    print(f"{len(own)} functions of annexes looked for in {len(built)} libraries")
    return sorted(found)


def words_of(name: str) -> str:
    """Return a regular expression of what an annex is called by."""
    written = ROOT / "tests/python" / name / "words.txt"
    if written.exists():
        return written.read_text(encoding="utf-8").strip()
    question = (
        f"from gmlake.{name}.annex import ANNEX; print(*ANNEX.names.values(), *ANNEX.commands)"
    )
    said = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=True
    )
    return rf"\b({'|'.join([*said.stdout.split(), f'gmlake[._]{name}'])})\b"


def words_left(names: set[str], kept: list[Path]) -> list[str]:
    """Return lines of the allocator that name an annex."""
    pattern = re.compile("|".join(f"(?:{words_of(name)})" for name in sorted(names)))
    found = []
    for path in kept:
        if path.parts[0] not in ("csrc", "src") or path.as_posix() == NAMES_ANNEXES:
            continue
        lines = (TREE / path).read_text(encoding="utf-8", errors="replace").splitlines()
        found += [
            f"{path}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(lines, start=1)
            if pattern.search(line)
        ]
    return found


def test(python: Path, ctest: str, jobs: int, *, quick: bool) -> dict[str, bool]:
    """Run the tests that are left, and say of each kind whether it went well."""
    hurry = ("--exclude-regex", LONG_IN_C) if quick else ()
    tests = TREE / "tests/python"
    chosen = [tests / name for name in QUICK_IN_PYTHON] if quick else [tests]
    ignored = [f"--ignore={tests}/house/test_{name}.py" for name in WHOLE]
    ignored += [f"--deselect=tests/python/house/{name}" for name in ABOUT_THE_WHOLE]
    return {
        "C": run(
            *(ctest, "--test-dir", BUILD, "--parallel", str(jobs), "--output-on-failure", *hurry)
        ),
        "Python": run(
            *(python, "-m", "pytest", "-q", *ignored, *(("-m", "not slow") if quick else ())),
            *(path for path in chosen if path.exists()),
        ),
    }


def main() -> int:
    """Return 1 if the allocator does not stand alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cmake", default="cmake")
    args = parser.parse_args()
    names = annexes()
    print(f"without {', '.join(sorted(names))}")
    kept = copy_tree(names)
    if not build(args.cmake, args.jobs):
        print("the allocator does not build alone")
        return 1
    ctest = re.sub("cmake$", "ctest", args.cmake)
    went = test(make_environment(), ctest, args.jobs, quick=args.quick)
    left = [*symbols_left(names), *words_left(names, kept)]
    print(*(f"left of an annex: {one}" for one in left), sep="\n")
    failed = [name for name, is_well in went.items() if not is_well] + ["names"] * bool(left)
    print(f"the allocator alone: {'failed: ' + ', '.join(failed) if failed else 'fine'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
