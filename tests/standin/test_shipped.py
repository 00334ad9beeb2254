"""The stand-in of the wheels, built beside one PyTorch, serves the PyTorch that runs these tests.

Wheels are built beside the PyTorch of `make standin`, whose build is tried here, under whichever
PyTorch this is.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.standin.forecasting import TRAIN, forecast
from tests.standin.places import ROOT


@pytest.fixture
def library() -> Path:
    """The stand-in that `make standin` built."""
    path = ROOT / "build" / "standin" / "standin" / "libcuda.so.1"
    if not path.exists() and os.environ.get("GMLAKE_REQUIRE_STANDIN") != "1":
        pytest.skip(f"{path} is missing: `make standin` builds it")
    return path


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that reads the names of libraries."""
    monkeypatch.syspath_prepend(str(ROOT / "csrc" / "standin"))
    return importlib.import_module("generate_stubs")


def test_it_has_every_function_that_this_pytorch_calls(library: Path, generator: Any) -> None:
    wanted = generator.wanted_by(Path(torch.__file__).parent / "lib")
    answered = generator.symbols([library], "--dynamic", "--defined-only")
    assert "cudaLaunchKernel" in wanted
    assert wanted - answered == set()


def test_it_answers_as_the_one_built_beside_this_pytorch(library: Path) -> None:
    found = forecast(TRAIN, GMLAKE_STANDIN_LIBRARY=str(library))
    assert found["torch"] == torch.__version__
    assert found["peak_live_bytes"] > 0
    assert found == forecast(TRAIN)
