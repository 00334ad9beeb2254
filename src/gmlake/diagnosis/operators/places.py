"""Finds where a program is: its own frames without PyTorch's, and the target of each line."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

import torch

import gmlake

MOST_FRAMES: Final = 8
"""Frames of a call path, unless a diagnosis says otherwise."""

_MOST_WALKED: Final = 256
"""Frames that are looked at to find those of the program."""

_MOST_LINES: Final = 50_000
"""Lines of a source file that is searched for names."""

_HIDDEN: Final = (
    str(Path(torch.__file__).parent),
    str(Path(gmlake.__file__).parent),
    "<frozen",
)
_LIBRARY: Final = str(Path(ast.__file__).parent)
_INSTALLED: Final = ("site-packages", "dist-packages")


class Target(NamedTuple):
    """The name that a line assigns to, "" if none, and the operation whose result that is."""

    name: str
    operation: str

    def is_of(self, operator: str) -> bool:
        """Whether the name stands for the result of this operator."""
        return self.operation == ("mm" if operator in _PRODUCTS else operator)


_NO_TARGET: Final = Target("", "")
_PRODUCTS: Final = ("mm", "bmm", "mv", "dot", "matmul")
_OPERATIONS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "mm",
}


class Frames:
    """The call paths of a program, each found once.

    depth: how many frames to keep.
    """

    def __init__(self, depth: int = MOST_FRAMES) -> None:
        self._depth = depth
        self._is_shown: dict[int, bool] = {}  # by id() of code
        self._codes: list[CodeType] = []  # of which the id is remembered, kept alive
        self._paths: dict[tuple[int, ...], tuple[str, ...]] = {}
        self._targets: dict[str, dict[int, Target]] = {}  # of each file, by line

    def here(self) -> tuple[str, ...]:
        """Return the call path of the caller, the innermost frame first."""
        if not self._depth:
            return ()
        key: list[int] = []
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (the only way to a frame)
        is_shown = self._is_shown
        missing, walked = self._depth, 0
        while frame is not None and missing and walked < _MOST_WALKED:
            code = frame.f_code
            shown = is_shown.get(id(code))
            if shown is None:
                shown = self._look_at(code)
            if shown:
                key += (id(code), frame.f_lasti)
                missing -= 1
            frame = frame.f_back
            walked += 1
        path = self._paths.get(tuple(key))
        return self._add(tuple(key), sys._getframe(1)) if path is None else path  # noqa: SLF001

    def target(self, path: tuple[str, ...]) -> Target:
        """Return the target of the innermost line of a path."""
        if not path:
            return _NO_TARGET
        function, _, place = path[0].partition("  ")
        if function.endswith("<lambda>"):  # whose line assigns the function, if anything
            return _NO_TARGET
        filename, _, line = place.rpartition(":")
        if filename not in self._targets:
            self._targets[filename] = _targets_in(filename)
        return self._targets[filename].get(int(line), _NO_TARGET)

    def _look_at(self, code: CodeType) -> bool:
        self._codes.append(code)
        shown = not code.co_filename.startswith(_HIDDEN) and not _is_library(code.co_filename)
        self._is_shown[id(code)] = shown
        return shown

    def _add(self, key: tuple[int, ...], frame: FrameType) -> tuple[str, ...]:
        shown = islice(self._shown(frame), self._depth)
        path = tuple(_described(outer) for outer in shown)
        self._paths[key] = path
        return path

    def _shown(self, frame: FrameType | None) -> Iterator[FrameType]:
        walked = 0
        while frame is not None and walked < _MOST_WALKED:
            if self._is_shown.get(id(frame.f_code)):
                yield frame
            frame = frame.f_back
            walked += 1


def _is_library(filename: str) -> bool:
    """Return whether a file is Python's own, or belongs to third-party wrappers in PyTorch."""
    if filename.endswith("typing_extensions.py"):
        return True
    return filename.startswith(_LIBRARY) and not any(name in filename for name in _INSTALLED)


def _described(frame: FrameType) -> str:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
    return f"{name}  {code.co_filename}:{frame.f_lineno or 0}"


def _targets_in(filename: str) -> dict[int, Target]:
    """Return the target of each line of a file, for each line of a multi-line statement."""
    lines = linecache.getlines(filename)
    if not lines or len(lines) > _MOST_LINES:
        return {}
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[int, Target] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            text = " = ".join(ast.unparse(target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            text = ast.unparse(node.target)
        else:
            continue
        target = Target(text.strip("()"), _operation(node.value))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            found.setdefault(line, target)
    return found


def _operation(value: ast.expr | None) -> str:
    """Return the last operation of an expression by PyTorch's name; "" if there is none."""
    if isinstance(value, ast.Call):
        function = value.func
        name = getattr(function, "attr", "") or getattr(function, "id", "")
        return "mm" if name in _PRODUCTS else str(name)
    if isinstance(value, ast.BinOp):
        return _OPERATIONS.get(type(value.op), "")
    return ""
