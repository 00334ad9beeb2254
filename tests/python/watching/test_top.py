"""gmlake top: what processes publish, files that are not what they should be, the command."""

from __future__ import annotations

import contextlib
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
from gmlake import owned
from gmlake.watching import CountersError, find, folders, publishing, read, reader
from gmlake.watching.counters import Counters
from gmlake.watching.table import Interval
from running import refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIB = 1 << 30
BEGUN_NS = time.time_ns()


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


# ---- what is published


def test_a_lake_is_published(lake: gmlake.Lake) -> None:
    (source,) = find()
    counters = read(source)
    stats = lake.stats()
    assert counters.pid == source.pid == os.getpid()
    assert counters.device == 0
    assert BEGUN_NS <= counters.time_ns <= time.time_ns()
    assert counters.start_ns <= counters.time_ns
    for name in ("live_blocks", "live_bytes", "requested_bytes", "reserved_bytes"):
        assert getattr(counters, name) == stats[name], name
    assert counters.peak_live_bytes == 4 * GIB
    assert counters.states == stats["states"]
    lake.trim()
    counters, stats = read(source), lake.stats()
    assert counters.driver_calls == sum(stats["driver_calls"].values())
    assert counters.largest_free_bytes == stats["largest_free_bytes"]
    assert counters.looked_free_bytes == stats["reserved_bytes"] - stats["live_bytes"]


def test_the_file_is_of_this_user_only(lake: gmlake.Lake, folder: Path) -> None:
    assert not lake.closed
    about = only_file(folder).lstat()
    assert (about.st_mode & 0o777, about.st_uid) == (0o600, os.getuid())
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_closed_lake_is_gone(folder: Path) -> None:
    with gmlake.Lake("sim") as lake:
        gmlake.publish(lake)
        assert len(find()) == 1
    assert find() == []
    assert list(folder.iterdir()) == []


def test_two_lakes_of_one_process() -> None:
    with gmlake.Lake("sim") as one, gmlake.Lake("sim") as two:
        gmlake.publish(one)
        gmlake.publish(two)
        block = two.allocate(GIB)
        assert sorted(read(source).live_bytes for source in find()) == [0, GIB]
        two.free(block)


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


def test_a_killed_process_with_the_same_number_is_in_nobodys_way(folder: Path) -> None:
    code = (
        "import os, gmlake\n"
        "from gmlake.watching import folders, find\n"
        "name = folders.Name(folders.namespace(), os.getpid(), 0)\n"
        "(folders.make() / str(name)).touch(0o600)\n"
        "with gmlake.Lake('sim') as lake:\n"
        "    gmlake.publish(lake)\n"
        "    print(sorted(source.name.number for source in find()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1]\n"
    assert [path.stat().st_size for path in folder.iterdir()] == [0]


@pytest.mark.torch
def test_what_could_not_be_published_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gmlake.pytorch import lakes

    lake = gmlake.Lake("sim")
    monkeypatch.setattr(lakes, "devices", lambda: [0])
    monkeypatch.setattr(lakes, "find", lambda _number: lake)
    publications = publishing._Publications()  # noqa: SLF001
    monkeypatch.setattr(folders, "candidates", lambda: (folder,))
    folder.chmod(0o755)
    with pytest.raises(PermissionError):
        publications.add_torch()
    folder.chmod(0o700)
    publications.add_torch()
    assert len(find()) == 1
    assert find()[0].name.number == 0
    lake.close()


def test_a_child_writes_and_removes_nothing_of_its_parent(lake: gmlake.Lake, folder: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    process = publisher("\nif os.fork() == 0: sys.exit(0)\nos.wait()")
    assert sorted(source.pid for source in find()) == sorted([os.getpid(), process.pid])
    end(process)
    assert len(list(folder.iterdir())) == 1
    assert not lake.closed


@pytest.mark.torch
def test_without_a_gpu_pytorch_has_nothing_to_publish(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    program = "import gmlake; gmlake.publish(); gmlake.publish()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("GmlakeWarning: gmlake.publish() publishes nothing: ") == 1
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


def test_a_file_of_another_size(copy: Path) -> None:
    size = copy.stat().st_size
    for wrong in (1 << 40, size + 1, size - 1, 32):
        os.truncate(copy, wrong)
        assert problem() == f"it is not {size} bytes long"
    for wrong in (17, 8, 1, 0):
        os.truncate(copy, wrong)
        assert problem() == "it holds no counters of gmlake"


def test_a_file_of_something_else(copy: Path) -> None:
    changed(copy, 0, b"\0" * 8)
    assert problem() == "it holds no counters of gmlake"


def test_a_file_of_another_version(copy: Path) -> None:
    changed(copy, 8, b"\x63\0\0\0")
    assert problem().startswith("it is of version 99")


def test_a_file_that_is_never_whole(copy: Path) -> None:
    changed(copy, 16, b"\x01")
    assert problem() == "it was being written at every attempt to read it"


def test_a_write_that_ends_is_waited_for(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the number is odd, bytes may be half old, half new: none of them may be told."""
    sequence = int.from_bytes(copy.read_bytes()[16:24], "little")
    (source,) = find()
    live = read(source).live_blocks
    changed(copy, 16, (sequence + 1).to_bytes(8, "little"))
    changed(copy, 48, (live + 7).to_bytes(8, "little"))

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            changed(copy, 48, (live + 8).to_bytes(8, "little"))
            changed(copy, 16, (sequence + 2).to_bytes(8, "little"))

    monkeypatch.setattr(reader, "_PATIENCE_S", 600)
    monkeypatch.setattr(time, "sleep", pause)
    assert read(source).live_blocks == live + 8
    assert len(pauses) == 5


def test_a_file_of_another_process(copy: Path) -> None:
    copy.rename(copy.with_name(str(folders.Name(folders.namespace(), os.getppid(), 0))))
    assert problem() == f"it claims to be of process {os.getpid()}"


def test_a_file_that_others_may_write(copy: Path) -> None:
    copy.chmod(0o606)
    assert problem() == "other users may use it: its mode is 606"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user(copy: Path) -> None:
    os.chown(copy, 65534, -1)
    assert problem() == "it belongs to another user"
    assert copy.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_a_folder_of_another_user(copy: Path) -> None:
    os.chown(copy.parent, 65534, -1)
    assert find() == []
    with pytest.raises(PermissionError, match="it belongs to another user"):
        os.close(owned.open_folder(copy.parent))


def test_another_user_sees_nothing_of_ours(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.getuid()
    assert len(find()) == 1
    monkeypatch.setattr(os, "getuid", lambda: real + 1)
    assert find() == []
    assert copy.exists()


def test_what_is_no_file(copy: Path) -> None:
    real = copy.rename(copy.parent.parent / "elsewhere")
    copy.symlink_to(real)
    (source,) = find()
    with pytest.raises(OSError, match="symbolic links"):
        read(source)
    copy.unlink()
    os.mkfifo(copy, 0o600)
    assert problem() == "it is not a plain file"
    copy.unlink()
    copy.mkdir(0o700)
    assert problem() == "it is not a plain file"


def test_a_number_that_another_process_got_later(copy: Path) -> None:
    an_hour_ns = 3600 * 10**9
    changed(copy, 32, (time.time_ns() - an_hour_ns).to_bytes(8, "little"))
    (source,) = find()
    with pytest.raises(FileNotFoundError):
        read(source)
    assert not copy.exists()


def test_names_that_are_not_ours_stay(folder: Path) -> None:
    other_container = folders.Name(folders.namespace() + 1, 1 << 30, 0)
    for name in ("notes.txt", str(other_container), "1-2.lake", "1-x-3.lake"):
        (folder / name).touch(0o600)
    assert find() == []
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("how", ["open", "link", "file"])
def test_a_folder_that_is_not_safe(
    how: str, lake: gmlake.Lake, folder: Path, tmp_path: Path
) -> None:
    elsewhere = folder.rename(tmp_path / "elsewhere")
    if how == "open":
        folder.mkdir()
        folder.chmod(0o755)
    elif how == "link":
        folder.symlink_to(elsewhere)
    else:
        folder.touch()
    assert find() == []
    with pytest.raises(OSError, match=r"another user|mode is 755|[Nn]ot a directory|symbolic"):
        os.close(owned.open_folder(folder))
    assert not (tmp_path / "shared").exists()
    (tmp_path / "shared").mkdir()
    gmlake.publish(lake)
    assert [source.folder for source in find()] == [tmp_path / "shared" / f"gmlake-{os.getuid()}"]


def test_no_folder_is_safe(folder: Path) -> None:
    folder.chmod(0o755)
    with gmlake.Lake("sim") as lake, pytest.raises(PermissionError, match="mode is 755"):
        gmlake.publish(lake)


def test_a_write_while_it_is_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    sequence = int.from_bytes(copy.read_bytes()[16:24], "little")
    writes = iter(range(1, 4))

    def read_slowly(file: int, size: int, at: int) -> bytes:
        data = real(file, size, at)
        if size > 8 and (number := next(writes, None)):
            changed(copy, 16, (sequence + 2 * number).to_bytes(8, "little"))
            changed(copy, 48, number.to_bytes(8, "little"))
        return data

    monkeypatch.setattr(reader, "_PATIENCE_S", 600)
    monkeypatch.setattr(os, "pread", read_slowly)
    (source,) = find()
    assert read(source).live_blocks == 3


def test_readings_are_never_torn() -> None:
    process = publisher(
        "import threading\n"
        "def work():\n"
        "    while True:\n"
        "        blocks = [lake.allocate(1 << 21) for _ in range(64)]\n"
        "        for block in blocks: lake.free(block)\n"
        "threading.Thread(target=work, daemon=True).start()"
    )
    try:
        (source,) = find()
        readings: list[Counters] = []
        until = time.monotonic() + 600
        while len({reading.allocations for reading in readings}) < 100:
            assert time.monotonic() < until, "the publisher does nothing"
            with contextlib.suppress(CountersError):  # on a busy machine one may come too late
                readings.extend(read(source) for _ in range(1000))
    finally:
        kill(process)
    for reading in readings:
        assert reading.live_bytes == reading.live_blocks << 21
        assert reading.allocations - reading.frees == reading.live_blocks
        assert sum(reading.states.values()) == reading.allocations


# ---- what follows from counters


def counters(**changes: Any) -> Counters:
    states = dict.fromkeys(("exact", "split", "stitch", "grow", "oom", "plan"), 0)
    names = [name for name in Counters.__dataclass_fields__ if name != "states"]
    return Counters(**{**dict.fromkeys(names, 0), "states": states, **changes})


@pytest.mark.parametrize(
    ("free", "largest", "expected"),
    [(0, 0, 0.0), (4, 1, 0.75), (4, 4, 0.0), (4, 9, 0.0), (4, 0, None)],
)
def test_fragmentation(free: int, largest: int, expected: float | None) -> None:
    found = counters(reserved_bytes=free, looked_free_bytes=free, largest_free_bytes=largest)
    assert found.fragmentation == expected
    assert counters(reserved_bytes=4).fragmentation is None, "nobody has looked"
    assert counters(looked_free_bytes=4, largest_free_bytes=1).fragmentation == 0


def test_rates_are_of_the_interval() -> None:
    states = {"exact": 10, "split": 0, "stitch": 0, "grow": 2, "oom": 0, "plan": 8}
    later = {**states, "exact": 20, "plan": 38}
    before = counters(states=states, cross_stream_waits=3)
    now = counters(states=later, cross_stream_waits=5)
    first, second = Interval(before, None, 2), Interval(now, before, 2)
    assert first.states_per_second["exact"] == 5
    assert second.states_per_second == {**dict.fromkeys(states, 0.0), "exact": 5.0, "plan": 15.0}
    assert (first.hit_rate, second.hit_rate) == (0.4, 0.75)
    assert (first.waits, second.waits) == (3, 2)
    assert Interval(now, now, 1).hit_rate is None
    assert Interval(now, now, 0).states_per_second["exact"] == 0


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


def test_json(lake: gmlake.Lake) -> None:
    done = run("top", os.getpid(), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    (entry,) = told["lakes"]
    assert told["unreadable"] == []
    assert entry["pid"] == os.getpid()
    assert entry["live_bytes"] == 2 * GIB
    assert entry["states"] == lake.stats()["states"]
    assert entry["hit_rate"] == 0
    assert entry["states_per_second"]["grow"] > 0
    assert "python" in entry["command"]


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


@pytest.mark.skipif(os.getuid() == 0, reason="every process is root's own")
def test_a_process_of_another_user() -> None:
    assert "process 1 is of another user" in refused("top", 1)


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


@pytest.mark.usefixtures("lake")
def test_q_ends_it() -> None:
    terminal = Terminal("--interval", "600")
    terminal.wait_for("2.00 GiB")
    terminal.press("x")
    terminal.press("q")
    assert terminal.close() == 0


def test_it_ends_with_the_last_process() -> None:
    process = publisher("lake.allocate(1 << 30)")
    terminal = Terminal("--interval", "0.1", str(process.pid))
    terminal.wait_for("1.00 GiB")
    thread = threading.Thread(target=end, args=(process,))
    thread.start()
    assert terminal.close() == 0
    thread.join()
