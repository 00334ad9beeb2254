"""The last lines of `make test`: what was left out, and the counts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOG = """\
c       | 83% tests passed, 2 tests failed out of 12
100% tests passed out of 74
python  | SKIPPED [28] tests/python/gpu/test_gpu.py:9: no CUDA device
standin | SKIPPED [1] tests/standin/test_x.py:7: no torch
python  | =========== 120 passed, 1 failed, 29 skipped, 3 warnings in 45.10s ===========
standin | ==== 7 passed, 3 xfailed, 2 errors in 737.02s (0:12:17) ====
python  | SKIPPED [2] tests/python/test_y.py:9: no CUDA device
"""

WRONG = """\
c       | The following tests FAILED:
c       | \t 17 - test_plan (Failed)
c       | \t 18 - test_share (SEGFAULT)
c       | \t 19 - test_stress (Timeout)
python  | FAILED tests/python/test_x.py::test_one[a - b] - AssertionError: 1 - 2
python  | FAILED tests/python/test_x.py::test_one[a - b] - AssertionError: 1 - 2
standin | ERROR tests/standin/test_y.py::test_two
standin | Timeout (0:15:00)!
standin | Thread 0x1 (most recent call first):
standin |   File "/usr/lib/python3.11/subprocess.py", line 1209 in wait
standin |   File "/home/me/gmlake/tests/python/support/shell.py", line 5 in asked
standin |   File "/home/me/gmlake/tests/standin/test_z.py", line 70 in test_three
standin |   File "/home/me/gmlake/tests/standin/test_z.py", line 71 in test_four
"""


def said_of(folder: Path, *broken: str, log: str = LOG) -> list[str]:
    path = folder / "log"
    path.write_text(log, encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests" / "counted.py"), str(path), *broken]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_all_runs_are_counted_and_reasons_are_said(tmp_path: Path) -> None:
    assert said_of(tmp_path) == [
        "left out 30: no CUDA device",
        "left out 1: no torch",
        f"{10 + 74 + 120 + 7} passed, {2 + 1 + 2} failed, 29 skipped",
    ]


def test_what_failed_or_hung_is_named_once(tmp_path: Path) -> None:
    assert said_of(tmp_path, log=WRONG)[:-1] == [
        "failed: test_plan",
        "failed: test_share",
        "failed: test_stress",
        "failed: tests/python/test_x.py::test_one[a - b]",
        "failed: tests/standin/test_y.py::test_two",
        "failed: tests/standin/test_z.py:70 test_three hung",
    ]


def test_a_stage_that_ran_no_test_is_a_failure(tmp_path: Path) -> None:
    assert said_of(tmp_path, *"abcdefg")[-1].split(", ")[1] == "7 failed"


def test_targets_run_beside_each_other_and_a_failure_is_said(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        "test-c:\n\t@echo 100% tests passed out of 3\n"
        "test-python:\n\t@echo 1 passed in 0.1s; false\n",
        encoding="utf-8",
    )
    command = [sys.executable, str(ROOT / "tests" / "every.py"), "make", "test-c", "test-python"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "c       | 100% tests passed out of 3" in lines
    assert "python  | 1 passed in 0.1s" in lines
    assert lines[-2:] == ["4 passed, 1 failed, 0 skipped", "failed: test-python"]
