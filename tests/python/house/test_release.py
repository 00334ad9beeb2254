"""What a release changes of the checkout it is made from."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://example.org/gmlake"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    for name in (".ci/links.py", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    program = str(tmp_path / ".ci" / "links.py")
    subprocess.run([sys.executable, program, URL, "v1.2.3"], check=True)
    return tmp_path


def test_every_link_of_the_readme_becomes_absolute(checkout: Path) -> None:
    before = (ROOT / "README.md").read_text(encoding="utf-8")
    text = (checkout / "README.md").read_text(encoding="utf-8")
    pattern = r'(?:\]\(|src="|srcset="|href=")([^)"]*)'
    for old, new in zip(re.findall(pattern, before), re.findall(pattern, text), strict=True):
        if re.match(r"https?:|#", old):
            assert new == old
            continue
        path = old.partition("#")[0]
        kind = "raw" if path.endswith(".png") else "blob"
        assert new == f"{URL}/{kind}/v1.2.3/{old}"
        assert (ROOT / path).exists()


def test_the_projects_pages_are_there_and_nothing_else_changes(checkout: Path) -> None:
    before = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    begin = text.index("[project.urls]")
    end = text.index("", begin) + 1
    added = text[begin:end]
    assert text[:begin] + text[end:] == before
    assert f'Source = "{URL}"' in added
    for line in added[1:]:
        assert not line or f'= "{URL}' in line
        if "/v1.2.3/" in line:
            assert (ROOT / line.split("/v1.2.3/")[1].rstrip('"')).exists()


def test_release_and_test_workflows_name_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            for command in re.findall(r"run: make (.*)", line):
                words = [word for word in command.split() if "=" not in word and '"' not in word]
                assert words[0] in targets, line
            for name in re.findall(r"\.ci/[\w.]+", line):
                assert (ROOT / name).exists(), line
