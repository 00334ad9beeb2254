"""Files of the repository as the checks of the house read them: each is read once."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path


@cache
def text_of(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """A module of Python, parsed; whoever reads it changes nothing in it."""
    return ast.parse(text_of(path))


def named(path: Path) -> str:
    """How a file is called in what a test says."""
    return path.relative_to(ROOT).as_posix()


def offenders(
    paths: Iterable[Path], check: Callable[[Path], Collection[str]]
) -> dict[str, list[str]]:
    """What a check finds wrong, by file; files in which it finds nothing are not there.

    A check of no files at all would pass unseen, so that is an error.
    """
    found = {named(path): sorted(check(path)) for path in paths}
    assert found, "there is no file to look at"
    return {name: wrong for name, wrong in found.items() if wrong}
