"""torch.compile: its kernels are built by Triton for the device that is not there."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
from tests.standin.running import Outcome, run_program

from gmlake.standin.launcher import find_library

HAS_COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))
HAS_HEADERS = Path(sysconfig.get_path("include"), "Python.h").exists()

pytestmark = pytest.mark.skipif(
    not (HAS_COMPILER and HAS_HEADERS),
    reason="Triton builds its launcher with a C compiler and the headers of Python",
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Train with and without CUDA graphs, compiling anew."""
    folder = tmp_path_factory.mktemp("compiled")
    return run_program(
        "compiled",
        variables={
            "TRITON_LIBCUDA_PATH": str(find_library().parent),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        },
    )


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_steady_step_keeps_nothing(outcome: Outcome, mode: str) -> None:
    results = outcome.results[mode]
    assert results["allocated"][-1] == results["allocated"][-2]
    assert results["memory_calls"] == {}
