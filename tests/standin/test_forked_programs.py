"""A program that is forked finds what a Python of its own would give it, and ends so."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from tests.standin import forks
from tests.standin.running import Process, finish_program, start_program

from gmlake.standin.launcher import MISUSE_EXIT

pytestmark = pytest.mark.usefixtures("_interruptible")  # which a background would not be


def begin(name: str, *arguments: str, own_process: bool, **more: Any) -> Process:
    started = start_program("forked", name, *arguments, own_process=own_process, **more)
    assert isinstance(started, forks.Forked) != own_process
    return started


@pytest.mark.parametrize("own_process", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("way", "code", "says"),
    [
        ("misused", MISUSE_EXIT, "stand-in: rules of CUDA broken: 1, see above"),
        ("failed", 1, "ValueError: as wanted"),
        ("exited", 7, ""),
        ("killed", 128 + signal.SIGKILL, "stand-in: ended by SIGKILL"),
        ("interrupted", 128 + signal.SIGINT, "stand-in: ended by SIGINT"),
        ("ended", 0, "the thread\nthe hook"),
    ],
)
def test_it_ends_the_same(way: str, code: int, says: str, own_process: bool) -> None:  # noqa: FBT001
    outcome = finish_program(begin(way, own_process=own_process))
    assert (outcome.code, outcome.errors.strip()[-len(says) or None :]) == (code, says or "")
