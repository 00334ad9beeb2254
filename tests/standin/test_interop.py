"""Other libraries on PyTorch's lakes. CuPy's own CUDA runtime does not start here."""

from __future__ import annotations

import importlib.util
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.places import ROOT
from tests.standin.running import run_program

from gmlake.standin.launcher import find_library

if TYPE_CHECKING:
    from pathlib import Path

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


def test_numba_takes_what_pytorch_let_go(numba: dict[str, Any]) -> None:
    assert numba["lent"]["reserved_bytes"] == numba["held"]["reserved_bytes"]
    assert numba["back"]["reserved_bytes"] == numba["held"]["reserved_bytes"]


def test_a_view_of_numba_keeps_its_memory(numba: dict[str, Any]) -> None:
    assert numba["viewed_blocks"] == 2  # the array before it waits for the end of its batch
    assert numba["freed"]["live_blocks"] == 0


def test_numba_waits_once_for_a_batch(numba: dict[str, Any]) -> None:
    assert numba["device_waits"] == 3


def test_numba_is_refused_with_a_reason(numba: dict[str, Any]) -> None:
    assert "CUDA_ERROR_OUT_OF_MEMORY" in numba["refusal"]
    assert "200 GiB asked for" in numba["refusal"]
    free_bytes, total_bytes = numba["info"]
    assert total_bytes == 80 << 30
    assert free_bytes > total_bytes - 16 * MIB


def test_numba_leaves_nothing(numba: dict[str, Any]) -> None:
    assert numba["left"] == {"live_bytes": 0, "reserved_bytes": 0, "live_blocks": 0}


def test_the_example_in_c_runs(tmp_path: Path) -> None:
    library = ROOT / "build" / "c"
    if not (library / "libgmlake.so").exists():
        pytest.skip(f"{library} has no libgmlake.so: run `make test-c`")
    places = [f"LIBRARY={library}", f"INCLUDE={ROOT / 'csrc' / 'include'}", f"OUT={tmp_path}"]
    subprocess.run(["make", "-s", "-C", ROOT / "examples" / "c", *places], check=True)  # noqa: S607
    done = subprocess.run(
        [tmp_path / "two_streams", "cuda"],
        capture_output=True,
        text=True,
        check=False,
        env={"LD_PRELOAD": str(find_library())},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("reserved 48 MiB, of which one stream lent another 144 MiB")
