"""`gmlake run --without-gpu`: the process that it becomes, and what is said where it cannot."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from gmlake.commands import main
from gmlake.standin import launcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class _Became(Exception):  # noqa: N818 (no error: what would run)
    """The program that the command would have become, with its environment."""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in, and a Python that has a PyTorch for it; neither could be used."""
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(b"\x7fELF")
    monkeypatch.setenv("GMLAKE_STANDIN_LIBRARY", str(path))
    monkeypatch.setattr(launcher, "check_pytorch", lambda: "2.11.0")
    return path


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Run the command as far as it becomes a program; return the environment of that."""

    def instead(program: str, words: list[str], variables: dict[str, str]) -> NoReturn:
        assert program == sys.executable
        assert words[-2:] == ["-c", "pass"]
        raise _Became(variables)

    def start(*options: str) -> dict[str, str]:
        with pytest.raises(_Became) as caught:
            main(["run", *options, "-c", "pass"])
        found: dict[str, str] = caught.value.args[0]
        return found

    monkeypatch.setattr(os, "execve", instead)
    return start


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["run", *options, "-c", "pass"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gmlake: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.usefixtures("library", "become")
def test_a_python_without_the_pytorch_that_it_needs_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> Any:
        raise launcher.StandinMissingError("PyTorch is not installed")

    monkeypatch.setattr(launcher, "check_pytorch", check)
    assert refused(capsys, "--without-gpu") == "gmlake: PyTorch is not installed\n"
