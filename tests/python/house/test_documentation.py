"""What the documents name is there."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.commands import COMMANDS, make_parser, subparsers
from places import ROOT
from sources import offenders, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOWTOS = ROOT / "docs" / "howto.md"
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
# `gmlake.something(`, but not the name of a file as in `gmlake.h`.
CALL = re.compile(r"\bgmlake\.([A-Za-z_]\w*)\(")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def missing_functions(text: str) -> set[str]:
    return set(CALL.findall(text)) - set(dir(gmlake))  # asking for one may need PyTorch


def test_every_function_that_a_document_calls_exists() -> None:
    assert offenders(DOCUMENTS, lambda path: missing_functions(text_of(path))) == {}


def missing_files(text: str, folder: Path) -> set[str]:
    return {name for name in LINK.findall(text) if not (folder / name).exists()}


def test_every_file_that_a_document_links_to_exists() -> None:
    assert offenders(DOCUMENTS, lambda path: missing_files(text_of(path), path.parent)) == {}


ANCHOR = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


def missing_anchors(path: Path) -> list[str]:
    pages = [
        (path.parent / name if name else path, anchor)
        for name, anchor in ANCHOR.findall(text_of(path))
    ]
    pages = [(page, anchor) for page, anchor in pages if page.suffix == ".md" and page.exists()]
    return [anchor for page, anchor in pages if anchor not in anchors(text_of(page))]


def test_every_heading_that_a_document_links_to_exists() -> None:
    assert offenders([*DOCUMENTS, ROOT / "CHANGELOG.md"], missing_anchors) == {}
    assert anchors("# `a b` and [c](d.md): e-f?\n```\n# no\n```\n") == {"a-b-and-c-e-f"}


def in_the_reference() -> list[str]:
    """The names of the reference: of gmlake itself, and dotted those of its modules."""
    tree = ast.parse((ROOT / "docs" / "generated.py").read_text())
    (titles,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PYTHON"
    )
    assert titles is not None
    return " ".join(ast.literal_eval(titles).values()).split()


def test_the_reference_lists_every_public_name() -> None:
    """Otherwise the site cannot be built, which shows only where mkdocs is installed."""
    own = [name for name in in_the_reference() if "." not in name]
    assert sorted(own) == sorted(set(gmlake.__all__) - {"__version__"})


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of each line that runs gmlake, but for those of another program."""
    for language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if language in ("", "sh") else ():
            words = line.partition("  #")[0].removeprefix("$ ").split()
            if words[:1] == ["gmlake"] and words[1:2] != ["--version"]:
                ends = [n for n, word in enumerate(words) if word in ("--", "-m", "-c")]
                ends += [n for n, word in enumerate(words) if word.endswith(".py")]
                yield words[1 : min(ends, default=None)]


def missing_options(text: str) -> list[str]:
    found = []
    for command, *words in filter(None, commands_in(text)):
        if command not in COMMANDS:
            found.append(command)
            continue
        known = set(subparsers(make_parser(command))[command]._option_string_actions)  # noqa: SLF001
        shown = {word.strip("[]").partition("=")[0] for word in words if word.strip("[")[0] == "-"}
        found += [f"{command} {flag}" for flag in shown - known]
    return found


def test_every_option_that_a_document_shows_exists() -> None:
    assert offenders(DOCUMENTS, lambda path: missing_options(text_of(path))) == {}


def test_what_a_document_names_and_there_is_not_is_found() -> None:
    assert missing_functions("`gmlake.Lake()`, `gmlake.sea()`") == {"sea"}
    assert missing_files("[a](README.md) [b](gone.md#x) [c](https://a.b)", ROOT) == {"gone.md"}
    text = "```sh\n$ gmlake replay --policy=x --gone y\ngmlake sail\ngmlake run -- --other\n```\n"
    assert missing_options(text) == ["replay --gone", "sail"]


def is_part(code: str, source: str) -> bool:
    """Whether lines are in a file one after the other, indented or not."""
    parts = [textwrap.indent(code, " " * depth) for depth in (0, 4, 8)]
    return any(f"\n{part}" in source for part in parts)


EXAMPLE = re.compile(r"^```\n(?:python|gmlake) .*examples/howto/(\w+)\.py\n```$", re.MULTILINE)


def sections(text: str) -> list[str]:
    return re.split(r"^(?=## )", text, flags=re.MULTILINE)


def missing_code(section: str) -> list[str]:
    """Return the code of a section that is not in the one example whose command it gives."""
    blocks, names = PYTHON.findall(section), EXAMPLE.findall(section)
    if len(names) > 1 or bool(blocks) != bool(names):
        return [f"there is only one of code and a command: {names}"]
    sources = [text_of(ROOT / "examples" / "howto" / f"{name}.py") for name in names]
    return [code for code in blocks if not all(is_part(code, source) for source in sources)]


def test_the_code_of_a_how_to_is_a_part_of_its_example() -> None:
    found = {part.splitlines()[0]: missing_code(part) for part in sections(text_of(HOWTOS))}
    assert {title: wrong for title, wrong in found.items() if wrong} == {}
    assert missing_code("## A\n```python\nf()\n```\n") != []


def test_every_example_of_a_how_to_has_its_section() -> None:
    examples = {path.stem for path in ROOT.glob("examples/howto/*.py")}
    assert sorted(EXAMPLE.findall(text_of(HOWTOS))) == sorted(examples)


def test_a_part_of_a_file_is_found() -> None:
    source = "import a\n\ndef f():\n    g()\n    if x:\n        h()\n"
    assert is_part("g()\nif x:\n    h()\n", source)
    assert is_part("def f():\n", source)
    assert not is_part("h()\ng()\n", source)
    assert not is_part("(x)\n", source)


# ---- docstrings

DESCRIBED = re.compile(r"[a-z_]+(?:, [a-z_]+)*(?=: )")


def described(docstring: str) -> set[str]:
    """Return the names that the paragraphs of a docstring explain, as in "capacity: in bytes"."""
    paragraphs = [text.split("\n") for text in docstring.split("\n\n")]
    lines = [line for text in paragraphs if DESCRIBED.match(text[0]) for line in text]
    return {name for line in lines if (m := DESCRIBED.match(line)) for name in m[0].split(", ")}


def described_in_vain(explained: object) -> set[str]:
    """Return what a docstring explains and its owner has not."""
    known = {*dir(explained), *getattr(explained, "__annotations__", ())}
    with suppress(TypeError, ValueError):  # of C, where the docstring has the signature
        known |= set(inspect.signature(explained).parameters)  # type: ignore[arg-type]
    with suppress(TypeError, OSError):  # the same
        known |= set(re.findall(r"self\.(\w+)", inspect.getsource(explained)))  # type: ignore[arg-type]
    return described(inspect.getdoc(explained) or "") - known


@pytest.mark.torch
def test_a_docstring_explains_what_there_is() -> None:
    found = {}
    for name in in_the_reference():
        module, _, last = f"gmlake.{name}".rpartition(".")
        found[name] = described_in_vain(getattr(import_module(module), last))
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_what_a_docstring_explains_is_found() -> None:
    text = "Do it.\n\na, b: numbers,\n    c: not this.\nd: too.\n\nIt ends\nso: there."
    assert described(text) == {"a", "b", "d"}

    def explained(a: int) -> int:
        """Do it.

        a, b: numbers.
        """
        return a

    assert described_in_vain(explained) == {"b"}
