"""Runs files of tests once more, in processes that gmlake serves, and tells what became of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.standin import gmlake_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.standin.running import Process

FOLDER = "tests/standin"
SETTINGS = ("--devices", "2", "--capacity", "80GiB")
PYTEST = ("-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider")
QUIET = ("-W", "ignore::gmlake.GmlakeWarning")  # other warnings are failures
_LINE = re.compile(r"^\S+::(?P<test>test_\S+) (?P<state>PASSED|FAILED|ERROR|SKIPPED)", re.MULTILINE)


@dataclass(frozen=True)
class Tested:
    """What became of each test: names by state, and all that was printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    code: int
    text: str


def start(*files: str, run: tuple[str, ...], variables: Mapping[str, str] | None = None) -> Process:
    """Start the tests of some files, to be given to finish().

    run: the options of `gmlake run`, () for a process without gmlake.
    """
    prefix = (*gmlake_run.RUN, *run) if run else ()
    words = (*prefix, *PYTEST, *QUIET, *(f"{FOLDER}/{name}.py" for name in files))
    return gmlake_run.start(*words, settings=SETTINGS, variables=variables)


def finish(process: Process) -> Tested:
    """Wait for the end. What errs around a test counts as failed, what is skipped as neither."""
    ended = gmlake_run.finish(process)
    states: dict[str, set[str]] = {state: set() for state in ("PASSED", "FAILED", "ERROR")}
    for match in _LINE.finditer(ended.output):
        states.setdefault(match["state"], set()).add(match["test"])
    failed = states["FAILED"] | states["ERROR"]
    text = ended.output + ended.errors
    return Tested(frozenset(states["PASSED"] - failed), frozenset(failed), ended.code, text)


def check(tested: Tested, expected: Mapping[str, str]) -> None:
    """Fail unless exactly what is expected to fail has failed."""
    surprises = tested.failed.symmetric_difference(expected)
    assert not surprises, f"{sorted(surprises)}\n{tested.text}"
    assert tested.code == (1 if expected else 0), tested.text  # a broken rule of CUDA would be 70
