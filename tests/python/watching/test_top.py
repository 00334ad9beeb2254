"""gmlake top: what processes publish, files that are not what they should be, the command."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.watching import CountersError, find, folders, read
from gmlake.watching.counters import Counters
from running import refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's files, empty."""
    runtime = tmp_path / "run"
    runtime.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr(folders, "SHARED_FOLDER", tmp_path / "shared")
    return folders.make()


@pytest.fixture
def lake() -> Iterator[gmlake.Lake]:
    """A lake that publishes: 2 GiB live, 4 reserved."""
    with gmlake.Lake("sim", "stitch", capacity="8GiB") as lake:
        gmlake.publish(lake)
        blocks = [lake.allocate(GIB) for _ in range(4)]
        lake.free(blocks[0])
        lake.free(blocks[2])
        with pytest.raises(gmlake.OutOfMemoryError):
            lake.allocate(64 * GIB)  # after which all is looked at
        yield lake


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def publisher(program: str) -> subprocess.Popen[str]:
    """Start a process that publishes a lake, runs `program` with it and waits for its input."""
    code = (
        "import gmlake, sys, os\n"
        "lake = gmlake.Lake('sim', 'stitch', capacity='8GiB')\n"
        "gmlake.publish(lake)\n"
        f"{program}\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=600)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_what_a_process_leaves_as_it_ends(folder: Path) -> None:
    process = publisher("import ctypes; ctypes.pythonapi.Py_IncRef(ctypes.py_object(lake))")
    assert [source.pid for source in find()] == [process.pid]
    end(process)  # with a lake that nobody closes, as those of PyTorch are
    assert list(folder.iterdir()) == []


def test_what_a_killed_process_leaves_is_removed(folder: Path) -> None:
    process = publisher("")
    kill(process)
    assert only_file(folder).exists()
    assert find() == []
    assert list(folder.iterdir()) == []


# ---- nothing in a file is trusted


def changed(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def problem() -> str:
    (source,) = find()
    with pytest.raises(CountersError) as error:
        read(source)
    return str(error.value)


@pytest.fixture
def copy(lake: gmlake.Lake, folder: Path) -> Path:
    """A file that no lake writes, with the counters of one."""
    assert not lake.closed
    original = only_file(folder)
    path = folder / str(folders.Name(folders.namespace(), os.getpid(), 99))
    path.touch(0o600)
    path.write_bytes(original.read_bytes())
    original.unlink()
    return path


def test_a_file_that_is_never_whole(copy: Path) -> None:
    changed(copy, 16, b"\x01")
    assert problem() == "it was being written at every attempt to read it"


def test_a_number_that_another_process_got_later(copy: Path) -> None:
    an_hour_ns = 3600 * 10**9
    changed(copy, 32, (time.time_ns() - an_hour_ns).to_bytes(8, "little"))
    (source,) = find()
    with pytest.raises(FileNotFoundError):
        read(source)
    assert not copy.exists()


def test_no_folder_is_safe(folder: Path) -> None:
    folder.chmod(0o755)
    with gmlake.Lake("sim") as lake, pytest.raises(PermissionError, match="mode is 755"):
        gmlake.publish(lake)


# ---- what follows from counters


def counters(**changes: Any) -> Counters:
    states = dict.fromkeys(("exact", "split", "stitch", "grow", "oom", "plan"), 0)
    names = [name for name in Counters.__dataclass_fields__ if name != "states"]
    return Counters(**{**dict.fromkeys(names, 0), "states": states, **changes})


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


def test_a_file_that_cannot_be_read_is_told_of(lake: gmlake.Lake, folder: Path) -> None:
    path = folder / str(folders.Name(folders.namespace(), os.getpid(), 99))
    path.touch(0o600)
    done = run("top", "--once")
    assert done.returncode == 0
    assert "it holds no counters of gmlake" in " ".join(done.stdout.split())
    assert path.name in json.loads(run("top", "--json").stdout)["unreadable"][0]
    lake.close()
    assert f"{path.name}: it holds no counters" in refused("top")


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
