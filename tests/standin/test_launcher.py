"""The command `python -m tests.standin`: exit codes, reports, signals, and what it refuses."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

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


START = "assert cuda.cuInit(0) == 0\n"


@pytest.mark.parametrize("value", ["a\nb", "\x1b[31m", "x" * 5000])
def test_a_setting_that_cannot_be_read_is_one_short_line(value: str) -> None:
    done = run(START, variables={"GMLAKE_STANDIN_LAG": value})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gmlake stand-in: GMLAKE_STANDIN_LAG=")
    assert line.endswith(": expected a whole number from 0 to 1048576")
    assert line.isprintable()
    assert len(line) < 300


@pytest.mark.parametrize(
    ("content", "mode"), [(b"notes", 0o600), (b"", 0o600), (b"notes" * 50_000, 0o1600)]
)
def test_a_file_of_something_else_is_not_shared_by_and_stays(
    content: bytes, mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    path.chmod(mode)
    done = run(START, "--shared", str(path))
    assert (done.returncode, path.read_bytes()) == (2, content)
    assert done.stderr == (
        f"gmlake stand-in: GMLAKE_STANDIN_SHARED={path}: another program's file, left as it is: "
        "name one that is not there\n"
    )
    assert list(tmp_path.iterdir()) == [path]


def test_a_shared_file_is_named_by_its_whole_path() -> None:
    done = run(START, "--shared", "devices")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("GMLAKE_STANDIN_SHARED=devices: expected an absolute path\n")
    assert not (ROOT / "devices").exists()


ANOTHER = f"""
import subprocess
other = subprocess.Popen([sys.executable, "-c", {LOAD + START!r} + "input()"], stdin=-1)
"""


@pytest.mark.parametrize(
    "code",
    [
        START,
        START + "os._exit(0)",
        START + "os.kill(os.getpid(), 9)",
        START + "if os.fork(): os.wait()",
        START + "if not os.fork(): cuda.cuInit(0)",
        START + ANOTHER + "other.communicate(b'\\n'); assert os.path.exists(path)",
        ANOTHER + START + "other.kill()",
    ],
)
def test_the_last_process_removes_what_was_shared(code: str, tmp_path: Path) -> None:
    look = f"path = {str(tmp_path / 'devices')!r}\n"
    done = run(
        look + code.replace(START, START + "assert os.path.exists(path)\n"),
        "--shared",
        str(tmp_path / "devices"),
    )
    assert done.stderr.replace("stand-in: ended by SIGKILL\n", "") == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_took_the_place_of_the_shared_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "devices"
    code = f"os.unlink({str(path)!r}); open({str(path)!r}, 'w').write('notes')"
    assert run(START + code, "--shared", str(path)).returncode == 0
    assert path.read_text(encoding="utf-8") == "notes"
    assert not path.stat().st_mode & stat.S_ISVTX
