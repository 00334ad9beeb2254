"""The list of NVIDIA's names that the stand-in answers has all that this PyTorch wants."""

# mypy: allow-untyped-calls

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.standin.places import ROOT

SOURCES = ROOT / "csrc" / "standin"


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that writes the functions with these names."""
    monkeypatch.syspath_prepend(str(SOURCES))
    return importlib.import_module("generate_stubs")


def listed() -> list[str]:
    return (SOURCES / "names.txt").read_text(encoding="utf-8").splitlines()


def test_every_name_that_pytorch_leaves_undefined_is_known(generator: Any) -> None:
    libraries = Path(torch.__file__).parent / "lib"
    runtime = libraries.parents[1] / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    wanted = generator.wanted_by(libraries)
    exported = generator.symbols([runtime], "--dynamic", "--defined-only")
    assert {"cudaLaunchKernel", "cublasCreate_v2", "cudnnCreate"} <= wanted
    assert "cudaMalloc" in exported
    assert wanted - set(listed()) - exported == set()


def test_the_list_has_each_name_once_in_order_and_only_nvidias(generator: Any) -> None:
    names = listed()
    assert names == sorted(set(names))
    assert [name for name in names if not generator.OURS.match(name)] == []
