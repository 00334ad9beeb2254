"""gmlake top: what processes publish, and the command."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.watching.counters import publishers, read
from running import refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30


@pytest.fixture(autouse=True, scope="module")
def _apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Who else publishes is not seen. This process publishes by one name only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        yield


@pytest.fixture
def lake() -> Iterator[gmlake.Lake]:
    """A lake that publishes: 2 GiB live, 4 reserved."""
    with gmlake.Lake("sim", "stitch", capacity="8GiB") as lake:
        gmlake.publish(lake)
        blocks = [lake.allocate(GIB) for _ in range(4)]
        lake.free(blocks[0])
        lake.free(blocks[2])
        yield lake


def publisher(program: str, begin: str | None = "") -> subprocess.Popen[str]:
    """Start a process that publishes a lake, runs `program` with it and waits for its input.

    Its first line was read, unless begin is None.
    """
    code = (
        "import gmlake, sys, os\n"
        "lake = gmlake.Lake('sim', 'stitch', capacity='8GiB')\n"
        "gmlake.publish(lake)\n"
        f"{program}\n"
        "print('ready\\n', end='', flush=True)\n"  # one write, also where Python does not buffer
        "sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert begin is None or process.stdout.readline() in ("ready\n", "both\n")
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=600)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_it_says_what_it_has_as_long_as_it_runs() -> None:
    process = publisher("lake.allocate(3 << 30)")
    assert publishers() == [process.pid]
    (told,) = read(process.pid)
    assert (told.pid, told.device, told.live_bytes) == (process.pid, 0, 3 * GIB)
    assert told.states["grow"] == told.allocations == 1
    kill(process)
    assert publishers() == []
    with pytest.raises(gmlake.Error, match="it publishes nothing"):
        read(process.pid)


def test_lakes_of_one_device_are_added_up_until_they_close() -> None:
    process = publisher(
        "other = gmlake.Lake('sim', 'stitch', capacity='8GiB')\n"
        "gmlake.publish(other), gmlake.publish(other)\n"
        "lake.allocate(1 << 30), other.allocate(2 << 30)\n"
        "print('both', flush=True), sys.stdin.readline()\n"
        "other.close()"
    )
    assert [told.live_bytes for told in read(process.pid)] == [3 * GIB]
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    assert [told.live_bytes for told in read(process.pid)] == [GIB]
    end(process)


def test_a_child_publishes_its_own() -> None:
    process = publisher(
        "lake.allocate(1 << 30)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    lake = gmlake.Lake('sim', 'stitch', capacity='8GiB')\n"
        "    gmlake.publish(lake), lake.allocate(2 << 30)\n"
        "    print(f'{os.getpid()}\\n', end='', flush=True), sys.stdin.readline(), os._exit(0)",
        begin=None,
    )
    assert process.stdout is not None
    (line,) = {process.stdout.readline(), process.stdout.readline()} - {"ready\n"}
    child = int(line)
    assert sorted(publishers()) == sorted([process.pid, child])
    assert [each.live_bytes for pid in (process.pid, child) for each in read(pid)] == [GIB, 2 * GIB]
    process.communicate("\n\n", timeout=600)


def test_one_that_is_stopped_is_told_of() -> None:
    process = publisher("")
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert refused("top") == f"gmlake: process {process.pid}: it is stopped\n"
    process.send_signal(signal.SIGCONT)
    end(process)


# ---- the command


def test_one_table(lake: gmlake.Lake) -> None:
    done = run("top", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    row, command = (line for line in done.stdout.splitlines() if str(os.getpid()) in line)
    for cell in ("2.00 GiB", "4.00 GiB", "0.0 %", "grow"):
        assert cell in row
    assert "pytest" in command
    assert all(len(line.rstrip()) <= 100 for line in done.stdout.splitlines())
    assert run("top", os.getpid()).stdout.count("4.00 GiB") == done.stdout.count("4.00 GiB")
    assert lake.stats()["views"] == 0


def test_where_nothing_publishes() -> None:
    how = "start it with GMLAKE_TOP=1, or call gmlake.publish() in it"
    assert refused("top") == f"gmlake: no process of yours publishes its counters; {how}\n"
    assert f"process {os.getpid()} publishes no counters; {how}" in refused("top", os.getpid())
    assert "there is no process 4294967295" in refused("top", 4294967295)


class Terminal:
    """`gmlake top` in a terminal."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gmlake", "top", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(theirs)
        self.text = ""

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 600
        while text not in self.text:
            assert time.monotonic() < until, self.text
            if select.select([self._ours], [], [], 0.1)[0]:
                self.text += os.read(self._ours, 1 << 16).decode(errors="replace")

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def close(self) -> int:
        while select.select([self._ours], [], [], 0.1)[0]:
            try:
                if not os.read(self._ours, 1 << 16):
                    break
            except OSError:
                break
        code = self.process.wait(timeout=600)
        os.close(self._ours)
        return code


@pytest.mark.usefixtures("_interruptible")
def test_it_follows_until_interrupted(lake: gmlake.Lake) -> None:
    terminal = Terminal("--interval", "0.1")
    terminal.wait_for("2.00 GiB")
    lake.allocate(3 * GIB)
    terminal.wait_for("5.00 GiB")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.close() == 0


def test_it_ends_with_the_last_process() -> None:
    process = publisher("lake.allocate(1 << 30)")
    terminal = Terminal("--interval", "0.1", str(process.pid))
    terminal.wait_for("1.00 GiB")
    thread = threading.Thread(target=end, args=(process,))
    thread.start()
    assert terminal.close() == 0
    thread.join()
