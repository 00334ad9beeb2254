"""How many lines each room may have. Whoever needs more frees them elsewhere, or says why here.

A change of this table is a commit of its own.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

from places import ROOT

ROOMS = {
    "csrc": 55550,
    "csrc/base": 990,
    "csrc/core": 1690,
    "csrc/diagnosis": 7220,
    "csrc/driver": 5720,
    "csrc/include": 1200,
    "csrc/lake": 5990,
    "csrc/planner": 5660,
    "csrc/policy": 8530,
    "csrc/python": 4660,
    "csrc/replay": 280,
    "csrc/standin": 7250,
    "csrc/torch": 6400,
    "src": 35970,
    "src/gmlake/budgets": 950,
    "src/gmlake/commands": 1600,
    "src/gmlake/compat": 860,
    "src/gmlake/diagnosis": 6040,
    "src/gmlake/integrations": 410,
    "src/gmlake/interop": 450,
    "src/gmlake/jobs": 1100,
    "src/gmlake/pictures": 2830,
    "src/gmlake/planner": 2130,
    "src/gmlake/pytorch": 4380,
    "src/gmlake/snapshots": 7260,
    "src/gmlake/standin": 3910,
    "src/gmlake/trace": 790,
    "src/gmlake/watching": 580,
    "lab": 4030,
    "tests": 63710,
    "tests/c": 23930,
    "tests/python": 15130,
    "tests/standin": 20220,
}

PROGRAMS = (".py", ".c", ".h", ".sh", ".cu")
BENCHMARKS_FILES, BENCHMARKS_LINES = 92, 8775
"""All files of benchmarks/, and the lines of its programs; results and recordings are data."""


@cache
def lines_by_file() -> dict[str, int]:
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is no clone, so it is not known which files are the repository's")
    command = ["git", "-C", str(ROOT), "ls-files", "csrc", "src", "lab", "tests", "benchmarks"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    there = [name for name in names if (ROOT / name).is_file()]
    return {name: (ROOT / name).read_bytes().count(b"\n") for name in there}


def lines_of(room: str) -> int:
    return sum(count for name, count in lines_by_file().items() if name.startswith(f"{room}/"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_no_more_lines_than_it_may(room: str) -> None:
    assert lines_of(room) <= ROOMS[room], f"free lines in {room}, or raise its budget and say why"


def test_benchmarks_are_no_more_than_they_may_be() -> None:
    lines = {name: n for name, n in lines_by_file().items() if name.startswith("benchmarks/")}
    assert len(lines) <= BENCHMARKS_FILES
    assert sum(n for name, n in lines.items() if name.endswith(PROGRAMS)) <= BENCHMARKS_LINES


def test_every_room_is_named() -> None:
    """A room beside these would have no limit."""
    folders = {path.parent.name for path in ROOT.glob("csrc/*/*.[ch]")}
    assert {f"csrc/{name}" for name in folders} <= set(ROOMS)
    packages = {path.parent.name for path in ROOT.glob("src/gmlake/*/__init__.py")}
    assert {f"src/gmlake/{name}" for name in packages} <= set(ROOMS)
