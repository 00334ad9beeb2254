"""A plugin of pytest: what each test came to, at once, in a file; and which code each one ran.

GMLAKE_MATRIX_ANSWERS names the file, a line of JSON for each test; GMLAKE_MATRIX_TESTS one with the
tests that are run, none of them for all. GMLAKE_REACH, if it is set, is
the file of reach.c, which is looked at and cleared after each test. GMLAKE_MATRIX_SECONDS names a
table of the processor time that each test may take; one that takes more ends the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from c_tests import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS = Path(os.environ["GMLAKE_MATRIX_ANSWERS"])
LIMITS: dict[str, float] = (
    json.loads(Path(os.environ["GMLAKE_MATRIX_SECONDS"]).read_text(encoding="utf-8"))
    if "GMLAKE_MATRIX_SECONDS" in os.environ
    else {}
)
REACH = Reach(Path(os.environ["GMLAKE_REACH"])) if "GMLAKE_REACH" in os.environ else None
TESTS = set(json.loads(Path(os.environ["GMLAKE_MATRIX_TESTS"]).read_text(encoding="utf-8")))
FAILED: set[str] = set()


def _say(**answer: Any) -> None:
    with ANSWERS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(answer) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what was not asked for; a name on the command line may be one that no shell has."""
    if TESTS:
        items[:] = [item for item in items if item.nodeid in TESTS]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _say(begins=item.nodeid)
    begin = time.monotonic()
    if REACH:
        REACH.wipe()
    signal.setitimer(signal.ITIMER_PROF, LIMITS.get(item.nodeid, 0.0))
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    hits: defaultdict[str, list[int]] = defaultdict(list)
    for module, address in REACH.found() if REACH else ():
        hits[module].append(address)
    _say(
        ends=item.nodeid,
        failed=item.nodeid in FAILED,
        seconds=round(time.monotonic() - begin, 3),
        hits=hits,
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILED.add(report.nodeid)
