"""Scripts for shells, in the shells that are there."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.commands import COMMANDS
from running import run

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = set(gmlake.policies())
ASKED = {
    "gmlake ": set(COMMANDS),
    "gmlake va": {"validate"},
    "gmlake replay --p": {"--policy"},
    "gmlake replay --policy ": {"all"} | POLICIES,
    "gmlake run --policy ": POLICIES,
    "gmlake view --replay ex": {"expandable"},
    "gmlake run --set are": {"arena="},
    "gmlake completion f": {"fish"},
    "gmlake query --at ": {"peak", "refusal", "end", "start"},
    "gmlake compare --by o": {"owner"},
    "gmlake view my": {"my memory.pickle"},
}


@cache
def script(shell: str) -> str:
    return run("completion", shell).stdout


def answer(shell: str, program: str, folder: Path, *words: str) -> set[str]:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run(
        [found, "-c", program, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert done.stderr == ""
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my memory.pickle").touch()
    return tmp_path


@pytest.mark.parametrize("typed", ASKED)
def test_bash_completes(typed: str, folder: Path) -> None:
    ask = """
COMP_WORDS=("$0" "$@") COMP_CWORD=$#
_gmlake
printf '%s\\n' "${COMPREPLY[@]}"
"""
    words = typed.split(" ")
    found = answer("bash", script("bash") + ask, folder, *words)
    assert found == ASKED[typed]


@pytest.mark.parametrize("typed", ASKED)
def test_fish_completes(typed: str, folder: Path) -> None:
    ask = f"complete --do-complete '{typed}'"
    found = {word.replace("\\", "") for word in answer("fish", script("fish") + ask, folder)}
    assert found == ASKED[typed]
