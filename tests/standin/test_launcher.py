"""The command `python -m tests.standin`: exit codes, reports, signals, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.standin.places import ROOT

# Neither needs PyTorch: the library is there from the start.
LOAD = "import ctypes, os, sys; cuda = ctypes.CDLL(None)\n"


def run(
    code: str, *options: str, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a few lines on a stand-in of their own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.standin", *options, "-c", LOAD + code],
        cwd=ROOT,
        env=os.environ | (variables or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, 40])
def test_a_signal_is_named(number: int) -> None:
    done = run(f"os.kill(os.getpid(), {number})")
    assert done.returncode == 128 + number
    assert "stand-in: ended by" in done.stderr.splitlines()[-1]
