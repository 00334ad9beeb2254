"""The budget of a command: what reading a file may cost, and that nothing of it stays behind."""

from __future__ import annotations

import gc
import resource
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from budgets import check_budget, check_own_work, fill, spin
from gmlake import budget
from gmlake.budget import Budget
from recording import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20


def limits() -> tuple[Any, ...]:
    """Everything that a budget changes while it holds."""
    return (
        resource.getrlimit(resource.RLIMIT_AS),
        signal.getsignal(signal.SIGPROF),
        signal.getitimer(signal.ITIMER_PROF),
        gc.isenabled(),
    )


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = limits()
    yield
    assert limits() == before


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "run.gmtrace"
    pairs().save(path)
    return str(path)


def refused(one: Budget, work: Any, *arguments: Any) -> str:
    with pytest.raises(gmlake.TraceError) as caught, one:
        work(*arguments)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_what_takes_too_long_is_stopped(file: str) -> None:
    begin = time.process_time()
    said = refused(Budget(file, seconds=0.1), spin, 60)
    assert time.process_time() - begin < 5
    assert said.startswith(f"{file}: refused: takes more than 0.1 s of CPU time")
    assert "in Python, where nothing is limited" in said


def test_an_end_that_was_dropped_comes_again(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Python drops what is raised while an object is freed."""

    class Slow:
        def __del__(self) -> None:
            spin(0.5)

    def work() -> None:
        Slow()
        spin(60)

    dropped: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", dropped.append)
    monkeypatch.setattr(budget, "_AGAIN_S", 0.2)
    assert "takes more than" in refused(Budget(file, seconds=0.1), work)
    assert len(dropped) == 1
    assert capsys.readouterr().err == ""


def test_what_takes_too_much_memory_is_stopped(file: str) -> None:
    said = refused(Budget(file, most_bytes=256 * MIB), fill, 300)
    assert said.startswith(f"{file}: refused: takes more than 256 MiB of memory")
    assert refused(Budget(file, most_bytes=256 * MIB), bytes, 1 << 40).startswith(said[:40])
    with Budget(file, most_bytes=256 * MIB):
        assert fill(100)


def test_other_errors_stay_as_they_are(file: str) -> None:
    with pytest.raises(KeyError), Budget(file):
        raise KeyError
    with pytest.raises(gmlake.OutOfMemoryError), Budget(file):
        raise gmlake.OutOfMemoryError("of the device")
    with pytest.raises(KeyboardInterrupt), Budget(file):
        raise KeyboardInterrupt


def test_time_outside_of_the_blocks_does_not_count(file: str) -> None:
    one = Budget(file, seconds=0.6)
    with one:
        spin(0.3)
    spin(1)
    with one:
        spin(0.1)
    assert "takes more than" in refused(one, spin, 0.5)


def test_the_budget_grows_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(4 * MIB))
    monkeypatch.setattr(budget, "LEAST_BYTES", 64 * MIB)
    monkeypatch.setattr(budget, "LEAST_SECONDS", 0.01)
    assert "takes more than 80.0 MiB of memory" in refused(Budget(path), fill, 200)
    with Budget(path):
        spin(0.1)  # 20 s for 100 MB are 0.8 s for this
    assert "takes more than 0.839 s" in refused(Budget(path), spin, 2)


def test_a_handler_of_the_caller_comes_back(file: str) -> None:
    called: list[int] = []

    def own(number: int, _frame: object) -> None:
        called.append(number)

    before = signal.signal(signal.SIGPROF, own)
    try:
        refused(Budget(file, seconds=0.05), spin, 5)
        assert signal.getsignal(signal.SIGPROF) is own
        signal.raise_signal(signal.SIGPROF)
    finally:
        signal.signal(signal.SIGPROF, before)
    assert called == [signal.SIGPROF]


def test_a_timer_of_the_caller_goes_on(file: str) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGPROF, lambda number, _frame: called.append(number))
    signal.setitimer(signal.ITIMER_PROF, 0.05, 0.05)
    try:
        with Budget(file, seconds=0.01):
            spin(0.5)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert called


def test_a_lower_limit_of_the_caller_stays(file: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    lower = 1 << 46
    resource.setrlimit(resource.RLIMIT_AS, (lower, hard))
    try:
        with Budget(file, most_bytes=1 << 47):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == lower
        with Budget(file):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] < lower
        assert resource.getrlimit(resource.RLIMIT_AS)[0] == lower
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_off_the_main_thread_nothing_is_limited(file: str) -> None:
    seen: list[tuple[Any, ...]] = []

    def work() -> None:
        with Budget(file, most_bytes=MIB, seconds=0.01):
            spin(0.1)
            seen.append(limits())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [limits()]


# ---- the commands


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pairs().save("run.gmtrace")
    return tmp_path


COMMANDS = {
    "view run.gmtrace -o page.html": "gmlake.snapshots.files.load_document",
    "view run.gmtrace -o page.html --replay all": "gmlake.pictures.page._section",
    "replay run.gmtrace": "gmlake.snapshots.opening.decode",
    "validate run.gmtrace": "gmlake.snapshots.opening.decode",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["time", "memory"])
@pytest.mark.usefixtures("files")
def test_every_command_has_a_budget(
    command: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    if command.startswith("view"):
        pytest.importorskip("bokeh", reason="pip install 'gmlake[view]'")
    check_budget(command, COMMANDS[command], what, monkeypatch, capsys)


@pytest.mark.usefixtures("files")
def test_what_a_command_does_itself_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    check_own_work(
        "replay run.gmtrace --policy stitch", "gmlake.commands.replay.replay", monkeypatch
    )
