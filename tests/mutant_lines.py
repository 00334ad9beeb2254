"""A plugin of pytest: which lines of some files each test runs, and its CPU time.

GMLAKE_MUTANT_FILES names the files, GMLAKE_MUTANT_ANSWERS where each test file's answer goes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

FILES = frozenset(os.environ.get("GMLAKE_MUTANT_FILES", "").split(os.pathsep))
HITS: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
SECONDS: defaultdict[str, float] = defaultdict(float)
FAILED: set[str] = set()
NOW = [""]  # the test that runs; the first has what runs before any


def _in_frame(frame: FrameType, event: str, _argument: Any) -> Any:
    if event == "line":
        HITS[frame.f_code.co_filename, frame.f_lineno].add(NOW[0])
    return _in_frame


def _at_call(frame: FrameType, _event: str, _argument: Any) -> Any:
    return _in_frame if frame.f_code.co_filename in FILES else None


def pytest_configure() -> None:
    threading.settrace(_at_call)
    sys.settrace(_at_call)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    SECONDS[item.nodeid] -= sum(os.times()[:4])
    NOW[0] = item.nodeid.split("::")[0]  # a fixture may be of the whole file
    sys.settrace(_at_call)
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield
    SECONDS[item.nodeid] += sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    NOW[0] = item.nodeid
    sys.settrace(_at_call)
    yield
    NOW[0] = item.nodeid.split("::")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILED.add(report.nodeid)


def pytest_sessionfinish(exitstatus: int) -> None:
    sys.settrace(None)
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    for test_file, path in json.loads(os.environ["GMLAKE_MUTANT_ANSWERS"]).items():
        lines = []
        for (file, line), tests in HITS.items():
            own = [test for test in tests if test.split("::")[0] in ("", test_file)]
            if own:
                lines.append((file, line, own))
        seconds = {
            test: -1.0 if test in FAILED else took
            for test, took in SECONDS.items()
            if test.split("::")[0] == test_file
        }
        answer = {"lines": lines, "seconds": seconds}
        Path(path).write_text(json.dumps(answer), encoding="utf-8")
