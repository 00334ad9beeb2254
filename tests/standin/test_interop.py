"""Other libraries on PyTorch's lakes. CuPy's own CUDA runtime does not start here."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from tests.standin.running import run_program

MIB = 1 << 20
LARGE = ("--devices", "2", "--capacity", "80GiB")


def tell(what: str) -> dict[str, Any]:
    outcome = run_program("interop", what, settings=LARGE)
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_a_function_in_c_shares_the_lake_of_pytorch() -> None:
    told = tell("c")
    assert told["held"]["live_bytes"] == told["torch_bytes"] == 50 * MIB
    assert told["elsewhere"] == 2 * MIB
    assert told["is_reused"]
    assert told["left"]["reserved_bytes"] == 0


@pytest.fixture(scope="module")
def numba() -> dict[str, Any]:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed: pip install numba-cuda")
    return tell("numba")


def test_numba_is_counted_with_pytorch(numba: dict[str, Any]) -> None:
    assert numba["held"]["live_bytes"] == numba["torch_bytes"] == 160 * MIB
