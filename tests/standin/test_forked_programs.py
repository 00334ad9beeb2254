"""A program that is forked finds what a Python of its own would give it, and ends so."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.standin import forks
from tests.standin.forks import ENVIRONMENT
from tests.standin.running import Process, finish_program, start_program

from gmlake.standin.launcher import MISUSE_EXIT

pytestmark = pytest.mark.usefixtures("_interruptible")  # which a background would not be
SETTINGS = ("--devices", "3", "--capacity", "5GiB", "--backed", "--name", "another GPU")


def begin(name: str, *arguments: str, own_process: bool, **more: Any) -> Process:
    started = start_program("forked", name, *arguments, own_process=own_process, **more)
    assert isinstance(started, forks.Forked) != own_process
    return started


@pytest.mark.parametrize("settings", [(), SETTINGS], ids=["inherited", "given"])
def test_it_finds_the_same(settings: tuple[str, ...]) -> None:
    variables = {"GMLAKE_POLICY": "caching", "CUDA_VISIBLE_DEVICES": "1,0"}
    more = {"settings": settings, "variables": variables}
    own, forked = (
        finish_program(begin("found", "a word", own_process=own_process, **more))
        for own_process in (True, False)
    )
    assert forked.results == own.results
    assert forked.results["devices"][0] == 2
    assert (forked.code, forked.errors) == (own.code, own.errors) == (0, "")


def test_chance_is_not_that_of_another() -> None:
    first, second = (finish_program(begin("drawn", own_process=False)) for _ in range(2))
    assert all(first.results[of] != second.results[of] for of in ("torch", "python", "numpy"))


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


def test_bad_settings_are_refused_before_it_begins() -> None:
    for settings, says in (
        (("--capacity", "1"), "from 64KiB to 64TiB"),
        (("--pace", "soon"), "invalid choice: 'soon'"),
    ):
        with begin("found", own_process=False, settings=settings) as process:
            output, errors = process.communicate()
        assert (output, process.returncode) == ("", 2)
        assert says in errors


def test_one_that_is_killed_with_its_launcher_is_over() -> None:
    with begin("found", own_process=False) as process:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == process.poll() == -signal.SIGKILL


@pytest.mark.parametrize(
    "name", ["PYTORCH_ALLOC_CONF", "LD_PRELOAD", "PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR", "OMP_X"]
)
def test_what_the_imports_may_read_asks_for_a_process(name: str) -> None:
    assert forks.server().can_start(ENVIRONMENT | {"GMLAKE_POLICY": "caching"})
    assert not forks.server().can_start(ENVIRONMENT | {name: "/nowhere"})
