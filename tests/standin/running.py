"""Programs that need a stand-in of their own: other settings, several processes, faults.

A program of the folder `programs` prints one JSON object, which the test looks into.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.standin import forks
from tests.standin.forks import ENVIRONMENT
from tests.standin.places import ROOT

import gmlake

if TYPE_CHECKING:
    from collections.abc import Mapping

Process = subprocess.Popen[str] | forks.Forked
PROGRAMS = Path(__file__).parent / "programs"
LONGEST_SECONDS: Final = 450
"""A program that hangs ends sooner than the test that waits for it, which pytest ends."""


def without_adapters(folder: Path) -> dict[str, str]:
    """Return variables for a gmlake that brings no adapter to PyTorch, and an empty cache."""
    packages = folder / "packages"
    if not packages.exists():
        ignored = shutil.ignore_patterns("adapter-2.*.so")
        shutil.copytree(Path(gmlake.__file__).parent, packages / "gmlake", ignore=ignored)
    return {"PYTHONPATH": str(packages), "XDG_CACHE_HOME": str(folder / "cache")}


@dataclass(frozen=True)
class Outcome:
    """What a program said.

    results: the JSON object that it printed. errors: its standard error.
    """

    code: int
    results: dict[str, Any]
    errors: str


def start_program(
    name: str,
    *arguments: str,
    allocator: str = "",
    settings: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
    own_process: bool = False,
) -> Process:
    """Start a program through the command line of the stand-in, to be given to finish_program().

    allocator: PYTORCH_ALLOC_CONF. settings: options of `python -m tests.standin`. variables:
    others that it sees. own_process: whether a Python of its own is started for it, as it is where
    the variables or the allocator say what PyTorch may read when it is imported; else it is forked.
    """
    environment = ENVIRONMENT | {"PYTORCH_ALLOC_CONF": allocator} | dict(variables or {})
    path = PROGRAMS / f"{name}.py"
    if not own_process and forks.server().can_start(environment):
        return forks.server().start(path, arguments, settings, environment)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.standin", *settings),
            *(str(path), *arguments),
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_to_the_end(process: Process, seconds: float) -> tuple[str, str]:
    """Wait for a program in a session of its own; return its output and its errors."""
    with process:
        try:
            return process.communicate(timeout=seconds)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the launcher and what it started


def finish_program(process: Process, seconds: float = LONGEST_SECONDS) -> Outcome:
    """Wait for a program, which must print a JSON object before it ends."""
    output, errors = read_to_the_end(process, seconds)
    assert output.startswith("{"), f"exit code {process.returncode}\n{output}{errors}"
    return Outcome(process.returncode, json.loads(output), errors)


def run_program(
    name: str,
    *arguments: str,
    allocator: str = "",
    settings: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
    own_process: bool = False,
) -> Outcome:
    """Run a program to its end; see start_program()."""
    return finish_program(
        start_program(
            name,
            *arguments,
            allocator=allocator,
            settings=settings,
            variables=variables,
            own_process=own_process,
        )
    )


def check_interrupts(program: str, what: str) -> None:
    """Run what interrupts a block at each of its lines; nothing may be left of it."""
    outcome = run_program(program, what, settings=("--capacity", "8GiB"))
    assert outcome.code == 0, outcome.errors
    assert outcome.results["lines"] > 20
    assert outcome.results["late"] < 10  # the first lines of entries and exits
    assert outcome.results["wrong"] == {}
