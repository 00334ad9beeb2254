"""Callbacks in the trainers of transformers, Lightning and Accelerate, with gmlake and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.gmlake_run import Ended, finish, program, start

if TYPE_CHECKING:
    from pathlib import Path

    from tests.standin.running import Process

TRAINERS = (
    pytest.param("transformers", marks=pytest.mark.long),
    pytest.param("lightning", marks=pytest.mark.long),
    "accelerate",
)
HALF = ["step", "step", "evaluation", "left"]
WHOLE, FAILED = HALF + HALF, ["step", "step"]


def begin(name: str, folder: Path, how: str) -> Process:
    settings = ("--backed", "--devices", "1", "--capacity", "1GiB")
    return start(program("integrations"), name, str(folder), how, settings=settings)


@pytest.fixture(scope="module", params=TRAINERS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    pytest.importorskip(found)
    return found


@pytest.fixture(scope="module")
def ended(name: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Train with gmlake and without, both at once."""
    processes = {how: begin(name, tmp_path_factory.mktemp(how), how) for how in ("on", "off")}
    return {how: finish(process) for how, process in processes.items()}


@pytest.fixture(params=["on", "off"])
def trained(request: pytest.FixtureRequest, ended: dict[str, Ended]) -> dict[str, Any]:
    found: Ended = ended[request.param]
    assert found.code == 0, found.errors
    assert found.result["is_enabled"] == (request.param == "on")
    return found.result


def test_steps_and_evaluations_are_marked(trained: dict[str, Any]) -> None:
    assert trained["seen"] == [WHOLE, WHOLE, FAILED, WHOLE]


def test_a_program_that_a_training_ends_has_the_page(name: str, tmp_path: Path) -> None:
    failed = finish(begin(name, tmp_path, "fails"))
    assert failed.code == 1
    assert "\nPlannedError\n" in failed.errors
    page = tmp_path / "memory.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert failed.errors.count(f"gmlake: memory of this training: {page}") == 1
