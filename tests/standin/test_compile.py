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


def test_kernels_of_triton_are_launched(outcome: Outcome) -> None:
    kernels = outcome.results["default"]["kernels"]
    assert kernels["cuLaunchKernel"] + kernels["cuLaunchKernelEx"] > 0
    assert kernels["cudaGraphLaunch"] == 0
    assert outcome.results["default"]["private_bytes"] == 0


def test_graphs_replace_them(outcome: Outcome) -> None:
    kernels = outcome.results["reduce-overhead"]["kernels"]
    assert kernels["cudaGraphLaunch"] == 2  # forward and backward
    assert kernels["cuLaunchKernel"] + kernels["cuLaunchKernelEx"] == 0
    assert outcome.results["reduce-overhead"]["private_bytes"] > 0


def test_everything_is_given_back(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.errors
    assert outcome.results["reserved_at_end"] == [0, 0]
