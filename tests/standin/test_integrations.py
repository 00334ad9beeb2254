"""Callbacks in the trainers of transformers, Lightning and Accelerate, with gmlake and without."""

from __future__ import annotations

import re
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
LINES = {
    *("memory/live_gib", "memory/live_peak_gib"),
    *("memory/reserved_gib", "memory/reserved_peak_gib"),
}
HALF = ["step", "step", "evaluation", "left"]
STEPS = 4
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


def test_each_step_is_logged_with_memory(trained: dict[str, Any]) -> None:
    assert len(trained["logged"]) == 3
    for logged in trained["logged"]:
        assert len(logged) >= STEPS
        for entry in logged:
            assert {key for key in entry if key.startswith("memory/")} == LINES
            assert 0 < entry["memory/live_gib"] <= entry["memory/live_peak_gib"] < 1
            assert entry["memory/live_gib"] <= entry["memory/reserved_gib"]
            assert entry["memory/reserved_gib"] <= entry["memory/reserved_peak_gib"] < 1


def test_every_training_has_its_page(trained: dict[str, Any], name: str) -> None:
    first, second, failed, last = trained["pages"]
    assert all(page.startswith("<!DOCTYPE html>") for page in (first, second, last))
    # transformers' Trainer tells nobody that it failed; the page came when the next one began.
    assert bool(failed) == (name != "transformers")


def test_pages_are_said(ended: dict[str, Ended]) -> None:
    for one in ended.values():
        assert one.errors.count("gmlake: memory of this training: ") == 4


def test_nothing_stays_open(trained: dict[str, Any], name: str) -> None:
    assert trained["is_in_step"] == (name == "transformers")
    assert not trained["is_in_step_at_the_end"]
    assert not trained["is_recording"]
    assert not trained["keeps_history"]


def test_a_page_shows_steps_and_evaluations(ended: dict[str, Ended]) -> None:
    page = ended["on"].result["pages"][0]
    for label in ("evaluation", "forward", "backward", "optimizer", *map(_step, range(STEPS))):
        assert re.search(rf"\b{label}\b", page), label
    assert not re.search(rf"\b{_step(STEPS)}\b", page)


def _step(index: int) -> str:
    return f"step {index}"


def test_steps_are_planned(ended: dict[str, Ended]) -> None:
    result = ended["on"].result
    assert result["planned_kinds"] == ["train"] * STEPS
    for entry in result["planned_logged"]:
        assert {key for key in entry if key.startswith("memory/")} == LINES | {"memory/planned"}
        assert 0 <= entry["memory/planned"] <= 1


def test_a_page_beside_another_recording_is_refused(ended: dict[str, Ended]) -> None:
    assert ended["on"].result["refusal"].startswith("a recording is on already")


def test_without_gmlake_one_line_says_so(ended: dict[str, Ended]) -> None:
    said = "gmlake serves nothing here"
    assert ended["off"].errors.count(said) == 1
    assert said not in ended["on"].errors


def test_a_program_that_a_training_ends_has_the_page(name: str, tmp_path: Path) -> None:
    failed = finish(begin(name, tmp_path, "fails"))
    assert failed.code == 1
    assert "\nPlannedError\n" in failed.errors
    page = tmp_path / "memory.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert failed.errors.count(f"gmlake: memory of this training: {page}") == 1
