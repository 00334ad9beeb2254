"""A short run of tests/fuzz.py, and that it would notice what it looks for."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


PROGRAM = ROOT / "tests" / "fuzz.py"


def run(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_input_of_a_short_run_fails(tmp_path: Path) -> None:
    said = run("--count", "40", "--seed", "1", "--keep", str(tmp_path))
    assert "0 of 40 failed" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_one_input_can_be_made_again(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        run("--only", "11", "--seed", "5", "--keep", str(tmp_path / name))
        folder = tmp_path / name / "5-11"
        made.append({path.name: path.read_bytes() for path in folder.glob("x*")})
    assert made[0]
    assert made[0] == made[1]


@pytest.fixture(scope="module")
def fuzz() -> Any:
    found = importlib.util.spec_from_file_location("fuzz", PROGRAM)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fuzz", module)
        patch.setattr(sys, "path", [*sys.path])
        found.loader.exec_module(module)
    return module


def say(text: str, code: int) -> Callable[[list[str]], int]:
    def command(_words: list[str]) -> int:
        sys.stderr.write(text)
        return code

    return command


def show(text: str) -> Callable[[list[str]], int]:
    def command(_words: list[str]) -> int:
        sys.stdout.write(text)
        return 0

    return command


def fail(_words: list[str]) -> int:
    raise RuntimeError("lost")


def spin(_words: list[str]) -> int:
    while True:
        pass


def fill(_words: list[str]) -> int:
    return len(b"x" * (300 << 20)) & 0


def die(_words: list[str]) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (fail, "a traceback: RuntimeError: lost"),
        (say("", 3), "exit code 3"),
        (say("", 2), "exit code 2 with 0 lines"),
        (say("gmlake: x: no\n" * 9, 2), "exit code 2 with 9 lines"),
        (say("a warning\n", 0), "exit code 0 with 1 lines"),
        (say("no\n", 2), "none of ours"),
        (say("gmlake: \x1b[31m\n", 2), "none of ours"),
        (say("gmlake: x: KeyError: 'a'\n", 2), "names an exception"),
        (say("gmlake: x: takes more than 20 s of CPU time\n", 2), "takes too much"),
        (show("\x1b[31m"), "control characters"),
        (show("{"), "the JSON is none"),
        (show("[NaN]"), "the JSON is none"),
        (spin, "of CPU time"),
        (fill, "of memory"),
        (die, "killed by SIGKILL"),
    ],
)
def test_what_is_wrong_is_noticed(
    fuzz: Any, command: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "run_command", command)
    monkeypatch.setattr(fuzz, "words_for", lambda *_: ["replay", "--json"])
    if command is spin:
        monkeypatch.setattr(fuzz, "CPU_SECONDS", 1.0)
    monkeypatch.setattr(fuzz, "MOST_GROWTH", 200 << 20)
    assert reason in fuzz.try_input(1, 1, tmp_path).reason
