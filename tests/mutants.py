"""The small changes whose notice tests/matrix looks for, and the files that a room has."""

from __future__ import annotations

import ast
import io
import json
import random
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
BY_HAND: Final = ROOT / "tests/mutants_by_hand.json"
ROOMS: Final = {
    "sleep": (
        *(f"csrc/lake/{name}.c" for name in ("sleep", "backup", "elastic")),
        "csrc/driver/remap.c",
    ),
    "plan": ("csrc/policy/steps",),
    "torch": ("csrc/torch",),
    "surface": ("src/gmlake/pytorch/*.py", "src/gmlake/lake.py"),
    "recordings": ("src/gmlake/snapshots", "src/gmlake/refusals.py", "src/gmlake/fitting.py"),
    "core": ("csrc/policy", "csrc/lake", "csrc/core", "src/gmlake/trace"),
}
SUFFIXES: Final = (".c", ".cpp", ".py")

_SWAPS: Final = (
    *((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != ")),
    *((" != ", " == "), (" + ", " - "), (" - ", " + "), (" += ", " -= "), ("++;", "--;")),
    *((" 0", " 1"), (" 1", " 2"), (" 2 *", " 3 *")),
)
_C_SWAPS: Final = (
    (" && ", " || "),
    (" || ", " && "),
    ("true", "false"),
    ("false", "true"),
    ("(!", "("),
)
_PYTHON_SWAPS: Final = (
    *((" and ", " or "), (" or ", " and "), ("True", "False"), ("False", "True")),
    *((" not ", " "), (" is not None", " is None"), ("continue", "break")),
)
# A call or an assignment alone on its line, which may be left out.
_STATEMENT: Final = re.compile(r"^\s+[a-z][\w>.\[\]\-]*(\(.*\)| [-+|&]?= .*);$")
_COMMENT: Final = re.compile(r"^\s*(/\*|\*|//)")


@dataclass(frozen=True)
class Mutant:
    """One changed line. number: from 0."""

    file: str
    number: int
    before: str
    after: str

    @property
    def place(self) -> tuple[str, int, str]:
        """Return what tells it from others: its file, its line from 1, and what stands there."""
        return self.file, self.number + 1, self.after.strip()

    def __str__(self) -> str:
        """Show it as a diff would."""
        place = f"{self.file}:{self.number + 1}"
        return f"{place}\n  - {self.before.strip()}\n  + {self.after.strip() or '(nothing)'}"


def _code_of_c(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with code; what is no code is blanked."""
    inside = False
    for number, line in enumerate(lines):
        if inside or _COMMENT.match(line):
            begins = inside or line.lstrip().startswith("/*")
            inside = begins and "*/" not in line
            continue
        code = line.split("/*")[0].split("//")[0]
        inside = "/*" in line and "*/" not in line
        yield number, re.sub(r'"(?:[^"\\]|\\.)*"', lambda text: "_" * len(text[0]), code)


def _code_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with code; texts and comments are blanked."""
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            (first, begin), (last, end) = token.start, token.end
            for row in range(first, last + 1):
                line = lines[row - 1]
                left = begin if row == first else 0
                right = end if row == last else len(line)
                lines[row - 1] = line[:left] + "_" * (right - left) + line[right:]
    yield from enumerate(lines)


def _left_out_of_python(text: str) -> Iterator[int]:
    """Yield the lines whose only statement may be left out."""
    for node in ast.walk(ast.parse(text)):
        calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if (calls or isinstance(node, ast.AugAssign)) and node.lineno == node.end_lineno:
            yield node.lineno - 1


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return every change there is to a file."""
    is_python = file.endswith(".py")
    lines = text.split("\n")
    found = []
    for number, code in _code_of_python(text) if is_python else _code_of_c(lines):
        line = lines[number]
        for old, new in _SWAPS + (_PYTHON_SWAPS if is_python else _C_SWAPS):
            for match in re.finditer(re.escape(old), code):
                changed = line[: match.start()] + new + line[match.end() :]
                found.append(Mutant(file, number, line, changed))
        if not is_python and _STATEMENT.match(line):
            found.append(Mutant(file, number, line, ""))
    if is_python:
        for number in _left_out_of_python(text):
            line = lines[number]
            indent = line[: len(line) - len(line.lstrip())]
            found.append(Mutant(file, number, line, f"{indent}pass"))
    return found


def files_of(rooms: list[str], root: Path = ROOT) -> list[str]:
    """Return the files of rooms: names in ROOMS, folders, files or globs. Raises ValueError."""
    found: set[str] = set()
    for room in rooms:
        for pattern in ROOMS.get(room, (room,)):
            paths = {
                inner
                for path in root.glob(pattern.rstrip("/"))
                for inner in (path.rglob("*") if path.is_dir() else (path,))
                if (inner == path or inner.suffix in SUFFIXES) and inner.is_relative_to(root)
            }
            if not paths and room not in ROOMS:
                raise ValueError(f"{room} has no file; rooms with a name are {', '.join(ROOMS)}")
            found |= {str(path.relative_to(root)) for path in paths}
    return sorted(found)


def in_order(rooms: list[str], seed: int, root: Path = ROOT) -> list[Mutant]:
    """Return every change to the files of rooms, shuffled in the same way for each seed."""
    files = files_of(rooms, root)
    every = [one for file in files for one in mutants_of(file, (root / file).read_text())]
    random.Random(seed).shuffle(every)  # noqa: S311
    return every


def by_hand() -> list[Mutant]:
    """Return the changes that somebody thought of, in the order of their list.

    Each is what stands `before`, within a line, behind the text that it is `under`.
    """
    found = []
    for entry in json.loads(BY_HAND.read_text()):
        text = (ROOT / entry["file"]).read_text()
        place = text.index(entry["before"], text.index(entry["under"]))
        number = text.count("\n", 0, place)
        before = text.split("\n")[number]
        after = before.replace(entry["before"], entry["after"], 1)
        found.append(Mutant(entry["file"], number, before, after))
    return found
