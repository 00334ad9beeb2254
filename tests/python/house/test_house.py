"""What a reader trips over: broken banners, names of files that are gone, silent symbols."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from places import ROOT
from sources import offenders, text_of, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

C_FILES = sorted(
    path
    for folder in ("csrc", "lab", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.[ch]")
)
FOLDERS = ("csrc", "lab", "src", "tests", "benchmarks", "examples", "docs")
NAMES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}
# Headers and files of others.
OUTSIDE = {
    *("Python.h", "cupti_driver_cbid.h"),
    *("cupti_callbacks.h", "generated_cuda_meta.h"),
    *("sanitizer_callbacks.h", "sanitizer_memory.h", "sanitizer_patching.h"),
}
WIDTH = 100
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FILE_NAME = re.compile(r"(?<![\w.<*-])[\w/]*?(\w+\.[ch])\b")
PUBLIC = sorted((*ROOT.glob("csrc/include/*.h"), *ROOT.glob("csrc/*/include/*.h")))


def broken_banners(text: str) -> list[str]:
    """Lines that begin a part of a file and are not one line, as wide as the page."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith("/* ---")]
    return [
        line
        for line in lines
        if len(line) != WIDTH or not re.fullmatch(r" */\* ---- \S.* -+( \*/)?", line)
    ]


def shared_lines(text: str) -> list[str]:
    """What stands on the line of a macro that is a statement."""
    return re.findall(r"Py_(?:BEGIN|END)_ALLOW_THREADS *[^\s\\].*", text)


def dead_names(comments: list[str]) -> set[str]:
    """Names of files of C that comments speak of, and that are nowhere."""
    found = {name for comment in comments for name in FILE_NAME.findall(comment)}
    return found - NAMES


def dead_in_comments(text: str) -> set[str]:
    return dead_names(COMMENT.findall(text)) - OUTSIDE


@pytest.mark.parametrize("check", [broken_banners, shared_lines, dead_in_comments])
def test_no_file_of_c_has(check: Callable[[str], Collection[str]]) -> None:
    assert offenders(C_FILES, lambda path: check(text_of(path))) == {}


def test_documents_name_files_that_are_there() -> None:
    documents = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), *ROOT.glob("csrc/*.md")]
    known = [path for path in documents if path.name != "CHANGELOG.md"]  # which tells of the past
    assert offenders(known, lambda path: dead_names([text_of(path)]) - OUTSIDE) == {}
    comments = [comment for path in C_FILES for comment in COMMENT.findall(text_of(path))]
    assert dead_names([*comments, *map(text_of, known)]) == OUTSIDE, (
        "OUTSIDE lists what nobody names"
    )


def undocumented(header: str) -> list[str]:
    """Public functions in whose paragraph no comment stands before them."""
    paragraphs = re.split(r"\n\s*\n", header)
    return [
        match[1]
        for paragraph in paragraphs
        for match in re.finditer(r"^GML_API[^;]*?\b(gml_\w+)\(", paragraph, re.MULTILINE)
        if "*/" not in paragraph[: match.start()]
    ]


def test_every_public_function_has_its_words() -> None:
    assert offenders(PUBLIC, lambda path: undocumented(text_of(path))) == {}


PATCHED = re.compile(r"_(?:cuda|accelerator)_\w+")
"""A text that names a function of torch._C."""


def parts_of(node: ast.Attribute) -> list[str]:
    """The names that follow "torch" in an expression; modules call torch._C "_C"."""
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.insert(0, inner.attr)
        inner = inner.value
    root = inner.id if isinstance(inner, ast.Name) else ""
    return {"torch": parts, "_C": ["_C", *parts]}.get(root, [])


def private_names(node: ast.AST) -> set[str]:
    """What a module names of torch that begins with an underscore, or is of such a module."""
    names: list[list[str]] = []
    if isinstance(node, ast.Attribute):
        names = [parts_of(node)]
    elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("torch."):
        names = [f"{node.module}.{alias.name}".split(".")[1:] for alias in node.names]
    elif isinstance(node, ast.Constant) and PATCHED.fullmatch(str(node.value)):
        names = [[str(node.value)]]
    found = {
        ".".join(name)
        for name in names
        if name != ["_C"] and any(re.match(r"_(?!_)", part) for part in name)
    }
    is_whole = isinstance(node, ast.Attribute) and bool(names[0])
    inner = () if is_whole else ast.iter_child_nodes(node)
    return found.union(*map(private_names, inner))


def test_one_file_names_private_parts_of_pytorch() -> None:
    """And one of each annex, private.py."""
    modules = (ROOT / "src/gmlake").rglob("*.py")
    found = offenders(modules, lambda path: private_names(tree_of(path)))
    named = [name for name in found if not name.endswith("/private.py")]
    assert named == ["src/gmlake/pytorch/compat.py"]


def test_these_tests_can_fail() -> None:
    short = "/* ---- a part ---- */"
    whole = "/* ---- a part " + "-" * (WIDTH - len("/* ---- a part ") - 3) + " */"
    assert broken_banners(f"{short}\n{whole}") == [short]
    begins = "Py_BEGIN_ALLOW_THREADS"
    assert shared_lines(f"    {begins}\n    {begins} x = 1;\n") == [f"{begins} x = 1;"]
    assert dead_in_comments("/* see gone/borrow.c and Python.h */") == {"borrow.c"}
    header = "/* Ends it. */\nGML_API void gml_end(void);\n\nGML_API int gml_size(void);\n"
    assert undocumented(header) == ["gml_size"]
    tree = ast.parse(
        "from torch._dynamo import config\n"
        "torch._C._cuda_x(torch.cuda.memory._y, torch.__file__, _C.Z, torch.cuda.empty_cache)\n"
        "setattr(_C, '_cuda_w', other._private)"
    )
    assert private_names(tree) == {
        *("_dynamo.config", "_C._cuda_x", "cuda.memory._y", "_C.Z", "_cuda_w"),
    }
