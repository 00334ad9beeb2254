"""gmlake under PyTorch: sessions, training, the end of memory, streams, graphs, forks."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.standin.running import run_program

SMALL = ("--capacity", "2GiB", "--devices", "2")


@cache
def run(name: str, *arguments: str, allocator: str = "", **variables: str) -> dict[str, Any]:
    """Run one function of the program `enabled`; the rest of its warnings must be ours."""
    outcome = run_program(
        "enabled", name, *arguments, allocator=allocator, settings=SMALL, variables=variables
    )
    assert outcome.code == 0, outcome.errors
    assert outcome.results.pop("is_ours")
    return outcome.results


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    return run("sessions")


def test_a_model_trains() -> None:
    results = run("training")
    assert results["calls"] == {}
    assert results["grown"] == 0
    live, reserved = results["peak"]
    assert live <= reserved
    assert results["left"] == [0, 0]
    assert results["misuses"] == 0


def test_a_program_goes_on_where_memory_ends() -> None:
    results = run("out_of_memory")
    assert results["text"].startswith("CUDA out of memory. Tried to allocate 4.00 GiB.")
    assert results["count"] == 1000
    *before, reserved_before, host_before = results["before"]
    *after, reserved_after, host_after = results["after"]
    assert after == before
    assert reserved_after <= reserved_before  # a refusal gives idle memory back first
    assert host_after - host_before < 4096  # KiB
    assert results["sizes"] == [2048, 1024]
    assert results["ooms"] == 1002
    assert results["misuses"] == 0
