"""CuPy, Numba and C on PyTorch's lakes, without a GPU; test_gpu_interop.py has the real ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gmlake.interop.shared_lakes import handle_of
from places import ROOT

PROGRAM = ROOT / "tests/python/support/interop_on_host.py"


@pytest.mark.parametrize(
    "scenario",
    [
        "one_lake",
        "c_functions",
        "fork",
        "numba_batches",
        "numba_large",
        "numba_defers",
        "numba_capture",
        "numba_memory_ends",
        "numba_reset",
        "numba_one_stream",
        "numba_too_late",
        "cupy_streams",
        "cupy_memory_ends",
        "cupy_one_stream",
    ],
)
def test_on_host_memory(scenario: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, scenario],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


# ---- without any of them -------------------------------------------------------------------------


def run(code: str, **variables: str) -> str:
    """Run code; return the last line of what it said."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_what_is_no_stream_has_none() -> None:
    with pytest.raises(TypeError, match="'side' is neither a stream"):
        handle_of("side")
