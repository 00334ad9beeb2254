"""What PyTorch programs tell gmlake of streams: those of other libraries, and who uses a tensor."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import run_program

MIB = 1 << 20
SETTINGS = ("--capacity", "320MiB", "--devices", "2")


def run(name: str, **variables: str) -> dict[str, Any]:
    """Run one function of the program `sharing_surface`, which must break no rule of CUDA."""
    outcome = run_program("sharing_surface", name, settings=SETTINGS, variables=variables)
    assert outcome.code == 0, outcome.errors
    assert outcome.results.pop("misuses") == 0, outcome.errors
    return outcome.results


def test_pytorchs_own_stream_is_trusted_when_it_is_wrapped() -> None:
    assert run("own") == {"device_waits": 0, "borrowed": True, "pairs": [True], "nowhere": []}


def test_a_tensor_of_many_streams_waits_for_the_last() -> None:
    seen = run("recorded")
    assert (seen["allocated"], seen["active"], seen["counts"]) == (0, 8 * MIB, [0, 1])
    assert seen["borrowers"]
    assert seen["bytes"] == [8 * MIB]
    assert seen["deferred"] == [8 * MIB] * 5 + [0]


def test_a_program_may_end_while_tensors_wait() -> None:
    assert run("at_exit") == {"deferred": 8 * MIB}


@pytest.mark.parametrize("name", [pytest.param("own", marks=pytest.mark.long), "recorded"])
def test_checking_the_order_changes_nothing(name: str) -> None:
    assert run(name, GMLAKE_TEST_CHECK_ORDER="1") == run(name, GMLAKE_TEST_CHECK_ORDER="0")
