"""What a reader trips over: broken banners, names of files that are gone, silent symbols."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

C_FILES = sorted(
    path
    for folder in ("csrc", "lab", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.[ch]")
)
FOLDERS = ("csrc", "lab", "src", "tests", "benchmarks", "examples", "docs")
NAMES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}
# Headers and files of others.
OUTSIDE = {
    *("Python.h", "driver_api.h", "CUDAPluggableAllocator.h", "cupti_driver_cbid.h"),
    *("cupti_callbacks.h", "generated_cuda_meta.h"),
}
WIDTH = 100
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FILE_NAME = re.compile(r"(?<![\w.<*-])[\w/]*?(\w+\.[ch])\b")
PUBLIC = sorted((*ROOT.glob("csrc/include/*.h"), *ROOT.glob("csrc/*/include/*.h")))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(params=C_FILES, ids=named)
def source(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text(encoding="utf-8")


def broken_banners(text: str) -> list[str]:
    """Lines that begin a part of a file and are not one line, as wide as the page."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith("/* ---")]
    return [
        line
        for line in lines
        if len(line) != WIDTH or not re.fullmatch(r" */\* ---- \S.* -+( \*/)?", line)
    ]


def test_a_banner_is_a_line(source: str) -> None:
    assert broken_banners(source) == []


def test_a_macro_that_is_a_statement_has_its_line(source: str) -> None:
    assert re.findall(r"Py_(?:BEGIN|END)_ALLOW_THREADS *[^\s\\].*", source) == []


def dead_names(comments: list[str]) -> set[str]:
    """Names of files of C that comments speak of, and that are nowhere."""
    found = {name for comment in comments for name in FILE_NAME.findall(comment)}
    return found - NAMES - OUTSIDE


def test_comments_name_files_that_are_there(source: str) -> None:
    assert dead_names(COMMENT.findall(source)) == set()


def test_documents_name_files_that_are_there() -> None:
    documents = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), *ROOT.glob("csrc/*.md")]
    known = [path for path in documents if path.name != "CHANGELOG.md"]  # which tells of the past
    assert dead_names([path.read_text(encoding="utf-8") for path in known]) == set()


def undocumented(header: str) -> list[str]:
    """Public functions in whose paragraph no comment stands before them."""
    paragraphs = re.split(r"\n\s*\n", header)
    return [
        match[1]
        for paragraph in paragraphs
        for match in re.finditer(r"^GML_API[^;]*?\b(gml_\w+)\(", paragraph, re.MULTILINE)
        if "*/" not in paragraph[: match.start()]
    ]


@pytest.mark.parametrize("header", PUBLIC, ids=named)
def test_every_public_function_has_its_words(header: Path) -> None:
    assert undocumented(header.read_text(encoding="utf-8")) == []


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
    package = ROOT / "src/gmlake"
    found = {
        path.relative_to(package).as_posix(): private_names(ast.parse(path.read_bytes()))
        for path in package.rglob("*.py")
    }
    named = [name for name, names in found.items() if names and not name.endswith("/private.py")]
    assert named == ["pytorch/compat.py"]


def test_these_tests_can_fail() -> None:
    short = "/* ---- a part ---- */"
    whole = "/* ---- a part " + "-" * (WIDTH - len("/* ---- a part ") - 3) + " */"
    assert broken_banners(f"{short}\n{whole}") == [short]
    assert dead_names(["/* see gone/borrow.c and Python.h */"]) == {"borrow.c"}
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
