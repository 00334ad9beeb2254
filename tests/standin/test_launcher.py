"""The command `python -m tests.standin`: exit codes, reports, signals, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.standin.places import ROOT

from gmlake.standin.launcher import MISUSE_EXIT

if TYPE_CHECKING:
    from pathlib import Path

# Neither needs PyTorch: the library is there from the start.
LOAD = "import ctypes, os, sys; cuda = ctypes.CDLL(None)\n"
MISUSE = "cuda.cudaFree(ctypes.c_void_p(4096))\n"


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


@pytest.mark.parametrize("code", [0, 3, 130, 200, 255])
def test_the_exit_code_is_the_programs(code: int) -> None:
    done = run(f"sys.exit({code})")
    assert done.returncode == code
    assert not done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, 40])
def test_a_signal_is_named(number: int) -> None:
    done = run(f"os.kill(os.getpid(), {number})")
    assert done.returncode == 128 + number
    assert "stand-in: ended by" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "way",
    [
        MISUSE,
        MISUSE + "os._exit(0)",
        MISUSE + "os.execv('/bin/true', ['true'])",
        "child = os.fork()\nif not child:\n    " + MISUSE + "    os._exit(0)\nos.waitpid(child, 0)",
        "cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(512))\n"
        "child = os.fork()\nif not child:\n    " + MISUSE + "    os._exit(0)\nos.waitpid(child, 0)",
    ],
    ids=["returns", "_exit", "exec", "forked", "forked after use"],
)
def test_misuse_is_found_however_the_process_ends(way: str) -> None:
    done = run(way)
    assert done.returncode == MISUSE_EXIT
    assert done.stderr.count("misuse: free") == 1
    assert "rules of CUDA broken: 1" in done.stderr


def test_the_programs_own_failure_comes_first() -> None:
    assert run(MISUSE + "sys.exit(5)").returncode == 5


def test_calls_are_counted_in_every_process_and_over_resets() -> None:
    count = "n = ctypes.c_int(); cuda.cudaGetDeviceCount(ctypes.byref(n))\n"
    reset = "cuda.gmlake_standin_reset_calls()\n"
    forked = "child = os.fork()\n" + count + "if not child: os._exit(0)\nos.waitpid(child, 0)\n"
    done = run(count * 3 + reset + count + forked, "--calls")
    assert done.returncode == 0
    lines = dict(line.split() for line in done.stderr.splitlines())
    assert lines["cudaGetDeviceCount"] == "6"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--devices", "17"), "GMLAKE_STANDIN_DEVICES=17: expected a whole number from 1 to 16"),
        (("--capacity", "80 GB"), "expected a size such as 80GiB"),
        (("--capacity", "-1"), "expected a size such as 80GiB"),
        (("--capacity", "1"), "from 64KiB to 64TiB"),
        (("--capacity", ""), "--capacity needs a value"),
        (("--capability", "99.9"), "expected a compute capability"),
        (("--lag", "x"), "expected a whole number"),
        (("--pace", "soon"), "invalid choice: 'soon'"),
    ],
)
def test_a_bad_setting_is_refused_before_the_program_begins(
    options: tuple[str, ...], says: str
) -> None:
    done = run("print('began')", *options)
    assert done.returncode == 2
    assert says in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("GMLAKE_STANDIN_LIBRARY", "/nowhere/libcuda.so.1", "is no shared library"),
        ("GMLAKE_STANDIN_LIBRARY", "/etc/passwd", "is no shared library"),
        ("GMLAKE_STANDIN_PYTHON", "/nowhere/python", "cannot be run"),
    ],
)
def test_a_missing_part_is_one_line(variable: str, value: str, says: str) -> None:
    done = run("print('began')", variables={variable: value})
    assert done.returncode == 2
    assert done.stderr.startswith("stand-in: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("visible", "devices"),
    [("0,1,2,3", 4), ("2", 1), ("1,0", 2), ("1,9,0", 1), ("3,3", 1), ("", 0), ("-1", 0), ("x", 0)],
)
def test_visible_devices_are_as_cuda_reads_them(visible: str, devices: int) -> None:
    code = "n = ctypes.c_int(9); cuda.cudaGetDeviceCount(ctypes.byref(n)); print(n.value)"
    done = run(code, "--devices", "4", variables={"CUDA_VISIBLE_DEVICES": visible})
    assert done.stdout.split() == [str(devices)]


def test_signals_are_passed_on_and_nothing_is_left(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(900)"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.standin", "-c", code],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not ready.exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in errors
    assert list(tmp_path.iterdir()) == [ready]


LOOK = (
    "free, total = ctypes.c_size_t(), ctypes.c_size_t()\n"
    "cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))\n"
    "print((total.value - free.value) >> 20, flush=True)\n"
)
HOLD = "cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(100 << 20))\n"


def test_processes_that_name_a_file_share_the_devices(tmp_path: Path) -> None:
    """Whatever each calls a device; and what a process held that was killed is free again."""
    code = (
        "import subprocess\n"
        "def other(number, code):\n"
        "    variables = os.environ | {'CUDA_VISIBLE_DEVICES': number}\n"
        "    subprocess.run([sys.executable, '-c', code], env=variables)\n"
        f"cuda.cudaSetDevice(1)\n{HOLD}"
        f"for number in '01':\n    other(number, {LOAD + LOOK!r})\n"
        f"other('1', {LOAD + HOLD + LOOK + 'os.kill(os.getpid(), 9)'!r})\n{LOOK}"
    )
    shared = str(tmp_path / "devices")
    done = run(code, "--devices", "2", "--capacity", "1GiB", "--shared", shared)
    assert done.stdout.split() == ["0", "100", "200", "100"], done.stderr
    assert done.returncode == 0


def test_a_file_that_cannot_be_shared_is_named() -> None:
    done = run(HOLD, "--shared", "/nowhere/devices")
    assert done.returncode == 2
    assert "GMLAKE_STANDIN_SHARED=/nowhere/devices: it cannot be written" in done.stderr
