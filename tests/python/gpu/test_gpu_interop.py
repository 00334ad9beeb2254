"""CuPy and Numba on a real device, with PyTorch on the same memory."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20

pytestmark = [pytest.mark.gpu, pytest.mark.torch]


@cache
def answers(library: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, str(Path(__file__).with_name("on_gpu_interop.py")), library]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return told


def answer(library: str, package: str, scenario: str) -> dict[str, Any]:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    told = answers(library)[scenario]
    assert "raised" not in told, told["raised"]
    return told


def of_cupy(scenario: str) -> dict[str, Any]:
    return answer("cupy", "cupy", scenario)


def of_numba(scenario: str) -> dict[str, Any]:
    return answer("numba", "numba_cuda", scenario)


def test_cupy_is_counted_with_pytorch() -> None:
    told = of_cupy("cupy_counted")
    assert told["live_bytes"] == 128 * MIB
    assert told["pool_bytes"] == 0


def test_cupy_takes_what_pytorch_let_go_and_writes_after_it() -> None:
    told = of_cupy("cupy_after_torch")
    assert told["unharmed"]
    assert told["same_address"]
    assert told["grown_bytes"] == 0


def test_the_stream_that_is_current_at_the_end_of_an_array_has_used_it() -> None:
    assert of_cupy("cupy_current_stream")["unharmed"]


def test_streams_of_cupy_come_and_go() -> None:
    told = of_cupy("cupy_streams_end")
    assert told["right"]
    assert told["handles"] < 300  # else this test shows less than it could
    assert told["reserved_bytes"] < 300 * 8 * MIB


def test_cupy_is_refused_by_its_own_error() -> None:
    told = of_cupy("cupy_out_of_memory")
    assert told["message"].startswith("Out of memory allocating 1,099,511,627,776 bytes")
    assert "out of memory" in told["cause"]
    assert told["sum"] == 1000


def test_cupy_allocates_by_functions_in_c() -> None:
    told = of_cupy("cupy_one_stream")
    assert told["sum"] == 999_999_000_000
    assert told["is_reused"]
    assert told["message"].startswith("Out of memory allocating 1,099,511,627,776 bytes")


def test_numba_computes() -> None:
    told = of_numba("numba_kernel")
    assert told["live_blocks"] == 3
    assert told["sum"] == 499_999_500_000 + 1_000_000


def test_numba_takes_what_pytorch_let_go_and_writes_after_it() -> None:
    told = of_numba("numba_after_torch")
    assert told["unharmed"]
    assert told["grown_bytes"] == 0


def test_pytorch_takes_what_numba_let_go_and_writes_after_it() -> None:
    assert of_numba("torch_after_numba")["unharmed"]


def test_numba_is_refused_by_its_own_error() -> None:
    told = of_numba("numba_out_of_memory")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in told["message"]
    assert 0 < told["free_bytes"] <= told["total_bytes"]
