"""Programs of several streams whose streams lend each other memory: how much, and is it safe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from tests.standin.places import ROOT
from tests.standin.running import run_program

MIB = 1 << 20
KNOBS = (
    "reuse_allow_opportunistic",
    "reuse_allow_internal_dependencies",
)


def only(*allowed: str) -> dict[str, str]:
    """Return the variables that let streams lend each other memory in these ways only."""
    wanted = (f"{knob}={int(any(word in knob for word in allowed))}" for knob in KNOBS)
    return {"GMLAKE_SET": ",".join(wanted)}


@cache
def turns(pace: str, *allowed: str) -> dict[str, Any]:
    """Two trainings in turn."""
    settings = ("--capacity", "80GiB", "--pace", pace)
    outcome = run_program("borrowing", "turns", settings=settings, variables=only(*allowed))
    assert outcome.code == 0, outcome.errors
    return outcome.results


def with_bytes(*arguments: str) -> dict[str, Any]:
    """Run a function on memory that has bytes."""
    settings = ("--backed", "--capacity", "2GiB")
    outcome = run_program("borrowing", *arguments, settings=settings)
    assert outcome.code == 0, outcome.errors
    assert outcome.results["misuses"] == 0
    return outcome.results


ALL = ("follow", "opportunistic", "internal")
PACES = ("eager", "lag", "manual")


@pytest.mark.parametrize("pace", PACES)
def test_two_trainings_in_turn_take_little_more_than_they_hold(pace: str) -> None:
    seen = turns(pace, *ALL)
    assert seen["reserved"] <= 1.05 * seen["live"]
    assert sum(step["borrowed"] for step in seen["steps"]) > 0


@pytest.mark.parametrize("pace", PACES)
def test_lending_never_takes_more_memory_than_not_lending(pace: str) -> None:
    with_it, without = turns(pace, *ALL), turns(pace)
    assert with_it["reserved"] <= without["reserved"]
    assert with_it["live"] == without["live"]
    assert without["reserved"] > 1.2 * without["live"]  # so that there was something to gain


def test_what_is_done_is_lent_without_a_wait() -> None:
    seen = turns("eager", "opportunistic")
    assert sum(step["waits"] for step in seen["steps"]) == 0
    assert sum(step["borrowed"] for step in seen["steps"]) > 0
    assert seen["reserved"] < turns("eager")["reserved"]


def test_what_is_pending_is_lent_after_a_wait_only() -> None:
    waiting = turns("manual", *ALL)
    assert sum(step["waits"] for step in waiting["steps"]) > 0
    patient = turns("manual", "follow", "opportunistic")
    assert sum(step["waits"] + step["borrowed"] for step in patient["steps"]) == 0


def test_a_block_that_a_recorded_stream_reads_is_lent_to_nobody() -> None:
    seen = with_bytes("recorded")
    assert seen["wrong"] == 0
    assert seen["deferred"] == 16 * MIB
    assert seen["deferred_later"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("pace", PACES)
def test_tensors_of_all_streams_keep_their_bytes(pace: str) -> None:
    seen = with_bytes("stress", pace, "0")
    assert seen["wrong"] == 0
    assert seen["compared"] > 1000
    assert seen["borrowed"] > 0


def test_a_stream_that_captures_is_left_alone() -> None:
    seen = with_bytes("capture")
    assert seen["is_right"]
    assert seen["records"] == 0


def example(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.standin", "--capacity", "80GiB"]
    command += [str(ROOT / "examples" / "two_streams.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.long
def test_the_example_shows_what_lending_saves() -> None:
    lending, alone, pytorch = example("--gmlake"), example("--alone"), example()
    assert lending["reserved_mib"] <= 1.05 * lending["live_mib"]
    assert lending["borrowed_mib"] > 0
    assert alone["borrowed_mib"] == alone["waits"] == 0
    assert alone["reserved_mib"] > 1.3 * lending["reserved_mib"]
    assert pytorch["reserved_mib"] > 1.3 * lending["reserved_mib"]


# Streams in turn, behind copies, of many experts, and at random.
PROGRAMS = ("wavelet-varying", "prefetch", "experts", "offload", "storm")


def reserved(program: str, way: str) -> dict[str, Any]:
    """Run a program of benchmarks/gpu/streams.py."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "tests.standin", "--capacity", "80GiB"]
    command += ["-m", "gpu.streams", "--one", program, "--ways", way, "--steps", "4"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_takes_more_memory_where_streams_lend(program: str) -> None:
    """But for two chunks: whose they are at the peak is a matter of chance."""
    lending, alone = reserved(program, "borrowing"), reserved(program, "alone")
    assert lending["peak_reserved_bytes"] <= alone["peak_reserved_bytes"] + (4 << 20)
    assert sum(step["cross_stream_waits"] for step in alone["steps"]) == 0
