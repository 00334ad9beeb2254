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


def said_of(folder: Path, *broken: str) -> list[str]:
    log = folder / "log"
    log.write_text(LOG, encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests" / "counted.py"), str(log), *broken]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_all_runs_are_counted_and_reasons_are_said(tmp_path: Path) -> None:
    assert said_of(tmp_path) == [
        "left out 30: no CUDA device",
        "left out 1: no torch",
        f"{10 + 74 + 120 + 7} passed, {2 + 1 + 2} failed, 29 skipped",
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
