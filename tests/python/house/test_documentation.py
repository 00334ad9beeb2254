"""What the documents name is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import gmlake
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
# `gmlake.something(`, but not the name of a file as in `gmlake.h`.
CALL = re.compile(r"\bgmlake\.([A-Za-z_]\w*)\(")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_function_that_a_document_calls_exists(document: Path) -> None:
    called = set(CALL.findall(document.read_text()))
    assert not {name for name in called if not hasattr(gmlake, name)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_links_to_exists(document: Path) -> None:
    linked = set(LINK.findall(document.read_text()))
    assert not {name for name in linked if not (document.parent / name).exists()}
