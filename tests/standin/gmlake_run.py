"""Starts programs under `gmlake run` on a stand-in of their own, and reads what they printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.standin import forks
from tests.standin.forks import ENVIRONMENT
from tests.standin.places import ROOT
from tests.standin.running import (
    LONGEST_SECONDS,
    PROGRAMS,
    Process,
    read_to_the_end,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN = ("-m", "gmlake", "run")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_REPORT = re.compile(
    r"^gmlake: (?P<name>(?:rank|process) \d+), device (?P<device>\d+)(?:, [^:\n]*)?: "
    r"\S+ \S+ reserved at the peak, \S+ \S+ live; (?P<allocations>[\d,]+) allocations "
    r"\((?P<states>.*)\); [\d,]+ driver calls"
    r"(; (?P<lent>[^;\n]* lent [^;\n]*))?(; held beside gmlake [^;\n]*)?"
    r"(; (?P<planned>.* steps planned, .*))?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Ended:
    """What a program left behind.

    results: the JSON objects that it printed, one for each line that is one. reports: one for each
    line of --report: name, device, allocations.
    """

    code: int
    results: list[dict[str, Any]]
    reports: list[dict[str, str]]
    output: str
    errors: str

    @property
    def result(self) -> dict[str, Any]:
        """The only JSON object."""
        assert len(self.results) == 1, self.output + self.errors
        return self.results[0]


def program(name: str) -> str:
    """Return the path of a program in the folder `programs`."""
    return str(PROGRAMS / f"{name}.py")


def start(
    *words: str,
    settings: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> Process:
    """Start `python *words` on a stand-in with these options, to be given to finish().

    folder: where it is started. A program of the tests is forked where it can be, see
    start_program(); `gmlake run` and other modules have a Python of their own.
    """
    environment = ENVIRONMENT | dict(variables or {})
    is_program = words[0].startswith(str(PROGRAMS)) and folder == ROOT
    if is_program and forks.server().can_start(environment):
        return forks.server().start(Path(words[0]), words[1:], settings, environment)
    # The first is where tests.standin is.
    paths = (str(ROOT), ENVIRONMENT.get("PYTHONPATH", ""))
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.standin", *settings, *words],
        cwd=folder,
        env=environment | dict(variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: Process, seconds: float = LONGEST_SECONDS) -> Ended:
    """Wait for a program and read what it printed."""
    output, errors = read_to_the_end(process, seconds)
    results = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    reports = [match.groupdict() for match in _REPORT.finditer(errors)]
    return Ended(process.returncode, results, reports, output, errors)


def run(
    *words: str, settings: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Ended:
    """Run a program to its end; see start()."""
    return finish(start(*words, settings=settings, variables=variables))


def run_benchmark(
    name: str,
    folder: Path,
    *options: str,
    settings: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Run `python -m NAME` of the benchmarks to its end, in a folder; see start()."""
    paths = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": paths, **(variables or {})}
    process = start("-m", name, *options, settings=settings, variables=environment, folder=folder)
    return finish(process)
