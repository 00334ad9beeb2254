"""The command line, called in this process: one of its own takes 0.3 s, nearly all of it to start.

What a process is for, such as signals, pipes and what stands before it, needs one nevertheless.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import pytest

from gmlake.commands import main

if TYPE_CHECKING:
    from pathlib import Path


class Done(NamedTuple):
    """What a command said, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


def _never(*_words: object) -> NoReturn:
    """Stand for execve(), which would turn these tests into a program that ends well."""
    raise AssertionError("the command began a program")


def run(*words: object, **variables: str | Path) -> Done:
    """Run gmlake with these words, and with variables of the environment."""
    said, wrong = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(wrong):
        patch.setattr(os, "execve", _never)
        for name, value in variables.items():
            patch.setenv(name, str(value))
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        said.flush()
        wrong.flush()
    return Done(code, *(each.buffer.getvalue().decode() for each in (said, wrong)))


def refused(*words: object, **variables: str | Path) -> str:
    """Run what must fail: exit code 2, nothing on stdout, one line on stderr, which is returned."""
    done = run(*words, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gmlake: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr
