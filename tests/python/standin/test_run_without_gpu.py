"""`gmlake run --without-gpu` where it cannot run: what is missing is said in one line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gmlake.commands import main
from gmlake.standin import launcher

if TYPE_CHECKING:
    import pytest


def test_a_python_without_the_pytorch_that_it_needs_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> Any:
        raise launcher.StandinMissingError("PyTorch is not installed")

    def become(*_: object) -> None:
        raise AssertionError("the program was started")

    monkeypatch.setattr(launcher, "check_pytorch", check)
    monkeypatch.setattr(os, "execve", become)
    assert main(["run", "--without-gpu", "-c", "pass"]) == 2
    assert capsys.readouterr() == ("", "gmlake: PyTorch is not installed\n")
