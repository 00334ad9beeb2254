"""CuPy, Numba and C on PyTorch's lakes, without a GPU; test_gpu_interop.py has the real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.interop.shared_lakes import handle_of
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = ROOT / "tests/python/support/interop_on_host.py"
EXAMPLE = ROOT / "examples" / "c" / "two_streams.c"
LIBRARY = ROOT / "build" / "c" / "libgmlake.so"


@pytest.mark.parametrize(
    "scenario",
    [
        "one_lake",
        "c_functions",
        "fork",
        "numba_batches",
        "numba_large",
        "numba_defers",
        "numba_capture",
        "numba_memory_ends",
        "numba_reset",
        "numba_one_stream",
        "numba_too_late",
        "cupy_streams",
        "cupy_memory_ends",
        "cupy_one_stream",
    ],
)
def test_on_host_memory(scenario: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, scenario],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


# ---- without any of them -------------------------------------------------------------------------


def run(code: str, **variables: str) -> str:
    """Run code; return the last line of what it said."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_importing_it_imports_no_library() -> None:
    code = "import sys, gmlake.interop; print({'torch', 'cupy', 'numba'} & {*sys.modules})"
    assert run(code) == "set()"


def test_the_environment_chooses_for_the_first_who_asks() -> None:
    code = "import gmlake.interop; gmlake.interop.lake(0)"
    assert run(code, GMLAKE_POLICY="mud").startswith("ValueError: GMLAKE_POLICY: no policy is")
    if not has_gpu():
        assert run(code, GMLAKE_POLICY="caching").startswith("gmlake.errors.DriverError: cuda:")


def has_gpu() -> bool:
    try:
        gmlake.device_describe("cuda")
    except gmlake.Error:
        return False
    return True


class Wrapped:
    """A stream under the protocol of CUDA Python."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 17)


class OfTorch:
    cuda_stream = 18


class OfCupy:
    ptr = 19


@pytest.mark.parametrize(
    ("stream", "handle"), [(5, 5), (Wrapped(), 17), (OfTorch(), 18), (OfCupy(), 19)]
)
def test_streams_of_every_library_have_a_handle(stream: object, handle: int) -> None:
    assert handle_of(stream) == handle


def test_what_is_no_stream_has_none() -> None:
    with pytest.raises(TypeError, match="'side' is neither a stream"):
        handle_of("side")


# ---- the C program -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example as its Makefile says."""
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built: run `make test-c`")
    folder = tmp_path_factory.mktemp("example")
    command = ["make", "-C", str(EXAMPLE.parent), f"OUT={folder}"]
    places = [f"LIBRARY={LIBRARY.parent}", f"INCLUDE={ROOT / 'csrc' / 'include'}"]
    done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / EXAMPLE.stem


def test_the_example_in_c_has_no_warnings() -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    options = ["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    include = ROOT / "csrc" / "include"
    done = subprocess.run(
        [compiler, *options, f"-I{include}", EXAMPLE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("driver", ["host", "sim"])
def test_the_example_in_c_lends_between_streams(program: Path, driver: str) -> None:
    done = subprocess.run([program, driver], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures, refusal = done.stdout.splitlines()
    assert refusal == "1 GiB of a lake of 64 MiB: out of device memory"
    assert figures.startswith("reserved 48 MiB, of which one stream lent another 144 MiB in all")


def test_the_example_in_c_says_what_it_lacks(program: Path) -> None:
    done = subprocess.run([program, "puddle"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no lake on puddle: driver 'puddle' is unknown; choose one of")
