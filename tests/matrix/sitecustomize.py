"""Lets each line of a package say that it ran: in the file GMLAKE_REACH, which all processes map.

On PYTHONPATH while tests/matrix traces. GMLAKE_REACH_LINES names a table, made by number_lines(),
of where in the file each line has its byte.
"""

from __future__ import annotations

import ast
import json
import mmap
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

BEGIN: Final = 16 * 256 + 15 * (8 << 20)
"""Where the lines of Python begin in the file: the last map of those that reach.c writes."""

NAME: Final = "__gmlake_reach__"


def number_lines(package: Path) -> dict[str, dict[int, int]]:
    """Return by file of the package a number for each line on which a statement begins."""
    number, found = 0, {}
    for path in sorted(package.rglob("*.py")):
        lines = sorted(
            {
                node.lineno
                for node in ast.walk(ast.parse(path.read_bytes()))
                if isinstance(node, ast.stmt)
            }
        )
        found[path.relative_to(package).as_posix()] = {
            line: number + at for at, line in enumerate(lines)
        }
        number += len(lines)
    return found


class _Probes(ast.NodeTransformer):
    """Puts a store of a byte before each statement."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers

    def _probed(self, body: list[ast.stmt], *, is_module: bool = False) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for at, node in enumerate(body):
            is_text = (
                at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            )
            is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            number = self._numbers.get(str(node.lineno))
            if number is not None and not is_text and not (is_module and is_future):
                probe = ast.parse(f"{NAME}[{BEGIN + number}] = 1").body[0]
                for part in ast.walk(probe):
                    ast.copy_location(part, node)
                found.append(probe)
            found.append(self.visit(node))
        return found

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            part = getattr(node, name, None)
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
                setattr(node, name, self._probed(part, is_module=isinstance(node, ast.Module)))
        for handler in getattr(node, "handlers", ()):
            self.visit(handler)
        for case in getattr(node, "cases", ()):
            self.visit(case)
        return node


def _install(reach: str, table: str) -> None:
    lines = json.loads(Path(table).read_text(encoding="utf-8"))
    with open(reach, "r+b") as file:  # noqa: PTH123 (pathlib is large)
        mapped = mmap.mmap(file.fileno(), 0)
    import builtins

    setattr(builtins, NAME, mapped)
    sys.dont_write_bytecode = True
    plain = SourceFileLoader.source_to_code
    folder = str(Path(lines["package"])) + os.sep

    def source_to_code(self: Any, data: Any, path: Any, *rest: Any, **more: Any) -> Any:
        name = os.fspath(path)
        numbers = lines["lines"].get(name.removeprefix(folder)) if name.startswith(folder) else None
        if numbers and isinstance(data, (bytes, str)):
            data = _Probes(numbers).visit(ast.parse(data))
        return plain(self, data, path, *rest, **more)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]


if "GMLAKE_REACH" in os.environ and "GMLAKE_REACH_LINES" in os.environ:
    _install(os.environ["GMLAKE_REACH"], os.environ["GMLAKE_REACH_LINES"])
