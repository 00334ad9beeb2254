"""gmlake begins and ends at any time, and nothing of PyTorch is missing; or it serves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.standin.running import (
    Outcome,
    finish_program,
    run_program,
    start_program,
    without_adapters,
)
from tests.standin.test_compile import HAS_COMPILER, HAS_HEADERS

from gmlake.pytorch import adapter, compiling


def run(name: str, *settings: str, **variables: str) -> dict[str, Any]:
    """Run one function of the program `native`."""
    outcome = run_program("native", name, settings=settings, variables=variables)
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_it_begins_beside_no_capture_and_no_pool_that_it_does_not_know() -> None:
    seen = run("begun")
    assert seen["early"] == ["RuntimeError: gmlake cannot begin", True] * 2 + [
        "RuntimeError: gmlake cannot begin"
    ]
    assert seen["later"] == ["", True, True] * 2
    assert seen["served"] == 16


@pytest.mark.parametrize("allocator", ["", "per_process_memory_fraction:0.95"])
def test_nothing_is_done_to_another_device(allocator: str) -> None:
    settings = ("--capacity", "1GiB", "--devices", "4")
    outcome = run_program("native", "apart", allocator=allocator, settings=settings)
    assert outcome.code == 0, outcome.errors
    assert outcome.results["used"] == [0]
    kept = 400 if torch.__version__ < "2.14" else 0  # PyTorch then empties every device's cache
    assert outcome.results["full"] == ["OutOfMemoryError", kept, [0, 1]]


@pytest.mark.long
@pytest.mark.skipif(not (HAS_COMPILER and HAS_HEADERS), reason="Triton needs a C compiler")
def test_compiled_steps_become_graphs(tmp_path: Path) -> None:
    from gmlake.standin.launcher import find_library

    seen = run(
        "graph_trees",
        TRITON_LIBCUDA_PATH=str(find_library().parent),
        TRITON_CACHE_DIR=str(tmp_path / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )
    assert seen["kernels"]["cudaGraphLaunch"] == 2
    assert seen["memory_calls"] == {}
    assert seen["private_bytes"] > 0
    assert seen["served"]
    assert seen["allocated"][-1] == seen["allocated"][-2]


def test_other_processes_can_be_given_what_gmlake_serves() -> None:
    seen = run("sharing")
    assert "operation not supported" in seen["ordinary"]  # the stand-in says so of plain memory
    assert seen["stitched"] == ""
    assert seen["served"] > 0


def test_a_request_that_a_capture_is_refused_leaves_nothing_held() -> None:
    seen = run("refused_capture", "--capacity", "256MiB")
    assert seen["refused"] == "OutOfMemoryError"
    assert seen["held"] < 228
    assert seen["kept"] == 5


# ---- the adapter

COMPILER = """#!{python}
import os, signal, sys, time
with open({log!r}, "a") as log:
    log.write("begun\\n")
{before}
os.execvp("c++", ["c++", *sys.argv[1:]])
"""


def compiler(folder: Path, before: str = "") -> dict[str, str]:
    """Return variables for a compiler that notes each start, and nothing compiled."""
    script = folder / "compiler"
    text = COMPILER.format(python=sys.executable, log=str(folder / "log"), before=before)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    return {"CXX": str(script)} | without_adapters(folder)


def starts(folder: Path) -> int:
    return len((folder / "log").read_text(encoding="utf-8").splitlines())


def adapters(folder: Path) -> list[Path]:
    return sorted((folder / "cache/gmlake").glob("*.so"))


@pytest.mark.long
def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    variables = compiler(tmp_path)
    started = [start_program("native", "sharing", variables=variables) for _ in range(4)]
    outcomes = [finish_program(process) for process in started]
    assert [outcome.code for outcome in outcomes] == [0] * 4
    assert starts(tmp_path) == 1
    assert len(adapters(tmp_path)) == 1
    run("sharing", **variables)
    assert starts(tmp_path) == 1


@pytest.mark.long
def test_a_compiler_that_is_killed_leaves_nothing_that_breaks(tmp_path: Path) -> None:
    dies = compiler(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert "PyTorch's own allocator does: the adapter to PyTorch cannot" in off(dies)
    assert adapters(tmp_path) == []
    run("sharing", **compiler(tmp_path))
    assert len(adapters(tmp_path)) == 1


@pytest.mark.long
def test_a_process_that_is_killed_while_it_compiles_holds_up_nobody(tmp_path: Path) -> None:
    waits = compiler(tmp_path, "time.sleep(900)")
    process = start_program("native", "sharing", variables=waits)
    deadline = time.monotonic() + 600
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert adapters(tmp_path) == []
    run("sharing", **compiler(tmp_path))
    assert [path.name.startswith("adapter-2.") for path in adapters(tmp_path)] == [True]


def off(variables: dict[str, str]) -> str:
    """Return what is said where gmlake cannot begin: the program goes on without it."""
    outcome = run_program("native", "unserved", variables=variables)
    assert outcome.code == 0, outcome.errors
    assert outcome.results == {"mode": "off", "enabled": False, "numbers": 1024, "served": 0}
    return outcome.errors


@pytest.mark.long
def test_an_adapter_of_the_package_needs_no_compiler_while_it_fits(tmp_path: Path) -> None:
    run("sharing", **compiler(tmp_path))
    (made,) = adapters(tmp_path)
    variables = {"CXX": "no-such-compiler"} | without_adapters(tmp_path)
    place = Path(variables["PYTHONPATH"], "gmlake/adapter")
    shutil.move(made, place)
    assert run("sharing", **variables)["served"] > 0
    with (place / "adapter.cpp").open("a", encoding="utf-8") as source:
        source.write("/* another one */\n")
    assert "install g++" in off(variables)


@pytest.mark.long
def test_an_adapter_that_this_node_cannot_load_is_compiled_once_more(tmp_path: Path) -> None:
    variables = compiler(tmp_path)
    run("sharing", **variables)
    (general,) = adapters(tmp_path)
    fits = general.read_bytes()
    general.write_bytes(fits[:64] + bytes(len(fits) - 64) + interface())
    for _ in range(2):
        assert run("sharing", **variables)["served"] > 0
    assert starts(tmp_path) == 2
    exact = next(path for path in adapters(tmp_path) if path != general)
    assert "-glibc-" in exact.name
    assert "-libstdc++.so." in exact.name
    # Neither one of another patch release is loaded, whose functions may lie elsewhere.
    general.write_bytes(fits.replace(interface(), b"x" * len(interface())))
    assert run("sharing", **variables)["served"] > 0
    exact.unlink()
    said = off(variables | {"CXX": "no-such-compiler"})
    assert said.count("GmlakeWarning") == 1
    assert "the one that is here cannot be loaded: it is for other headers of PyTorch" in said


def interface() -> bytes:
    build = adapter.installed()
    assert build is not None
    return compiling.interface(build.home)


@pytest.mark.long
def test_the_compiler_may_have_more_words(tmp_path: Path) -> None:
    variables = compiler(tmp_path)
    words = f"env 'NAME=of more' {variables['CXX']} -g0"
    assert run("sharing", **variables | {"CXX": words})["served"] > 0
    assert starts(tmp_path) == 1


@pytest.mark.long
def test_without_a_cache_it_works_all_the_same(tmp_path: Path) -> None:
    variables = {"TMPDIR": str(tmp_path)} | without_adapters(tmp_path)
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    outcome: Outcome = run_program("native", "sharing", variables=variables)
    assert outcome.code == 0
    assert "is not used (Not a directory), so the adapter to PyTorch is compiled" in outcome.errors
    assert not list(tmp_path.glob("gmlake-*"))


pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler"
)
