"""Readers that take too long or too much, and the refusal that a command gives of them."""

from __future__ import annotations

import importlib
import mmap
import time
from typing import Any

import pytest

import gmlake
from gmlake import budget
from gmlake.commands import main

MIB = 1 << 20


def spin(seconds: float) -> None:
    """Take CPU time; what a reader would catch is caught."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        try:
            sum(range(1000))
        except Exception:  # noqa: BLE001 (that is the point)
            pytest.fail("a reader could take the end of its time for an error of its own")


def fill(mebibytes: int) -> int:
    """Take memory that nobody had before, or turn its absence into another error, as readers do."""
    try:
        with mmap.mmap(-1, mebibytes * MIB) as taken:
            return len(taken)
    except OSError:
        raise gmlake.TraceError("needs more memory than this machine has") from None


def check_budget(
    command: str,
    reader: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Let a reader, by its path, take too much "time" or "memory": one line says so."""
    assert main(command.split()) in (0, 1)  # what is imported on the way costs once
    capsys.readouterr()

    def endless(*_arguments: object) -> None:
        if what == "time":
            spin(60)
        else:
            fill(2000)

    monkeypatch.setattr(budget, "LEAST_SECONDS", 0.5)
    monkeypatch.setattr(budget, "LEAST_BYTES", 1024 * MIB)
    monkeypatch.setattr(reader, endless)
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"gmlake: {command.split()[1]}: refused: takes more than ")
    assert said.count("\n") == 1


def check_own_work(command: str, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a command does with what it has read, by its path, take long: it may."""
    module, _, name = work.rpartition(".")
    do = getattr(importlib.import_module(module), name)

    def slowly(*arguments: Any, **options: Any) -> Any:
        spin(1)
        return do(*arguments, **options)

    monkeypatch.setattr(budget, "LEAST_SECONDS", 0.5)
    monkeypatch.setattr(work, slowly)
    assert main(command.split()) == 0
