"""The budget of a command: what reading a file may cost, and that nothing of it stays behind."""

from __future__ import annotations

import gc
import resource
import signal
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
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["time", "memory"])
@pytest.mark.usefixtures("files")
def test_every_command_has_a_budget(
    command: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    check_budget(command, COMMANDS[command], what, monkeypatch, capsys)


@pytest.mark.usefixtures("files")
def test_what_a_command_does_itself_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    check_own_work(
        "replay run.gmtrace --policy stitch", "gmlake.commands.replay.replay", monkeypatch
    )
