"""`gmlake run --without-gpu`: the process that it becomes, and what is said where it cannot."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from gmlake.commands import main
from gmlake.standin import launcher
from gmlake.standin.devices import DEVICES

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


def test_the_program_finds_the_named_device_in_place_of_cuda(
    library: Path,
    become: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    found = become("--without-gpu", "--device", "rtx-4090")
    assert found["LD_PRELOAD"].split(":")[0] == str(library)
    assert found["GMLAKE_RUN"] == "1"
    card = DEVICES["rtx-4090"]
    assert found["GMLAKE_STANDIN_NAME"] == f"{card.label} (gmlake stand-in, no GPU)"
    assert found["GMLAKE_STANDIN_CAPACITY"] == str(card.memory_bytes)
    assert found["GMLAKE_STANDIN_CAPABILITY"] == card.capability
    assert found["GMLAKE_STANDIN_MULTIPROCESSORS"] == str(card.multiprocessors)
    assert "CUDA_VISIBLE_DEVICES" not in found
    said = capsys.readouterr().err
    assert said == (
        "gmlake: no GPU is there: nothing is computed on NVIDIA GeForce RTX 4090 "
        "(gmlake stand-in, no GPU)\n"
    )


@pytest.mark.usefixtures("library")
def test_a_device_may_be_a_size_and_need_not_be_named(
    become: Callable[..., dict[str, str]],
) -> None:
    sized = become("--without-gpu", "--device", "40GiB")
    assert sized["GMLAKE_STANDIN_CAPACITY"] == str(40 << 30)
    plain = become("--without-gpu")
    assert plain["GMLAKE_STANDIN_NAME"].startswith("NVIDIA H100 80GB HBM3 (")


@pytest.mark.usefixtures("library")
def test_other_options_hold_as_well(
    become: Callable[..., dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = become("--without-gpu", "--record", "memory.pickle", "--policy", "caching")
    assert found["GMLAKE_RECORD"] == str(tmp_path / "memory.pickle")
    assert found["GMLAKE_POLICY"] == "caching"


@pytest.mark.usefixtures("library")
def test_without_the_option_the_program_keeps_its_gpu(
    become: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    found = become()
    assert found.get("LD_PRELOAD") == os.environ.get("LD_PRELOAD")
    assert found["CUDA_VISIBLE_DEVICES"] == "3"
    assert capsys.readouterr().err == ""


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["run", *options, "-c", "pass"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gmlake: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.usefixtures("library", "become")
def test_a_wrong_device_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no device is called 'abacus'" in refused(capsys, "--without-gpu", "--device", "abacus")
    assert "--device is for --without-gpu" in refused(capsys, "--device", "h200")


@pytest.mark.usefixtures("library", "become")
def test_a_gmlake_without_its_standin_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GMLAKE_STANDIN_LIBRARY")
    monkeypatch.setattr(launcher, "__file__", str(tmp_path / "elsewhere" / "launcher.py"))
    assert "this gmlake was built without its stand-in GPU" in refused(capsys, "--without-gpu")


@pytest.mark.usefixtures("library", "become")
def test_a_python_without_the_pytorch_that_it_needs_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> Any:
        raise launcher.StandinMissingError("PyTorch is not installed")

    monkeypatch.setattr(launcher, "check_pytorch", check)
    assert refused(capsys, "--without-gpu") == "gmlake: PyTorch is not installed\n"
