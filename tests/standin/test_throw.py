"""A refusal of gmlake is PyTorch's own exception, wherever it is thrown."""

from __future__ import annotations

from typing import Any

import pytest
from tests.standin.running import run_program

MIB = 1 << 20


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Run the program once; it fails where a device may not touch what it copies to another."""
    outcome = run_program("throw", settings=("--devices", "2", "--capacity", "80GiB"))
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_a_refusal_is_an_out_of_memory_error_that_says_why(seen: dict[str, Any]) -> None:
    kind, text = seen["main"]
    assert kind == "OutOfMemoryError"
    assert text.startswith("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has a total ")
    assert "total capacity of 80.00 GiB of which 77.00 GiB is free." in text
    assert "(policy stitch) holds 3.00 GiB, of which 3.00 GiB are in use by 1 tensor," in text
    assert "Tried: " in text
    assert "torch.cuda.memory_summary()" in text
    assert "\n" not in text


def test_it_names_the_device(seen: dict[str, Any]) -> None:
    kind, text = seen["other_device"]
    assert kind == "OutOfMemoryError"
    assert "GPU 1 has a total capacity of 80.00 GiB" in text


@pytest.mark.parametrize("where", ["python_backward", "backward"])
def test_it_reaches_the_script_from_threads_of_autograd(seen: dict[str, Any], where: str) -> None:
    kind, text = seen[where]
    assert kind == "OutOfMemoryError"
    assert text.startswith("CUDA out of memory. Tried to allocate ")


def test_what_is_no_lack_of_memory_is_another_error(seen: dict[str, Any]) -> None:
    kind, text = seen["impossible"]
    assert kind == "RuntimeError"
    assert "could not allocate 1 bytes on GPU 0" in text
    assert "is not a stream handle" in text


def test_what_no_device_has_is_a_lack_of_memory(seen: dict[str, Any]) -> None:
    kind, text = seen["endless"]
    assert kind == "OutOfMemoryError"
    assert "Tried to allocate more than 1EB memory. GPU 0 has a total capacity of 80.00 GiB" in text


def test_a_memory_fraction_refuses_and_is_named(seen: dict[str, Any]) -> None:
    kind, text = seen["limited"]
    assert kind == "OutOfMemoryError"
    assert "gmlake may hold 40.00 GiB of it" in text
    assert seen["fits"][0] == "none"


def test_thousands_of_refusals_leave_nothing(seen: dict[str, Any]) -> None:
    assert 0 <= seen["growth"] < MIB
    assert 0 <= seen["growth_in_backward"] < MIB
    assert seen["left_blocks"] == 0


def test_many_threads_may_be_refused_at_once(seen: dict[str, Any]) -> None:
    assert seen["threads"] == ["OutOfMemoryError"]
