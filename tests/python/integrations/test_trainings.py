"""What callbacks of trainers do where there is no GPU, and none of the trainers."""

# mypy: allow-untyped-calls

from __future__ import annotations

import importlib
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

import gmlake  # noqa: E402
from gmlake.integrations.accelerate import GmlakeTraining  # noqa: E402
from gmlake.integrations.training import Training  # noqa: E402
from gmlake.pytorch import notices, phases  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.torch]
pytestmark += [pytest.mark.skipif(torch.cuda.is_available(), reason="tests are for a CPU alone")]


class Told:
    """What a recording would be told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def enter_named(self, named: phases.Named) -> None:
        self.seen.append(named.name)

    def leave_named(self) -> None:
        self.seen.append("left")

    def step_begins(self) -> None:
        self.seen.append("step")


class Accelerator:
    """As much of Accelerate's as a loop needs: gradients are complete in every n-th batch."""

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.batches = 0
        self.logged: list[tuple[dict[str, Any], int | None]] = []

    @property
    def sync_gradients(self) -> bool:
        return self.batches % self.every == 0

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        self.logged.append((values, step))


@pytest.fixture
def seen() -> Iterator[list[str]]:
    told = Told()
    phases.add_listener(told)
    yield told.seen
    phases.remove_listener(told)
    assert not phases.is_in_step()


@pytest.fixture(autouse=True)
def _said_before() -> Iterator[None]:
    """Let every test have the warnings that come once."""
    before = set(notices._said)  # noqa: SLF001
    notices._said.add("integrations")  # noqa: SLF001
    yield
    notices._said.clear()  # noqa: SLF001
    notices._said.update(before)  # noqa: SLF001


def training(**options: Any) -> Training:
    return Training(options.get("page"), options.get("plan", False))


def test_steps_and_evaluations_are_told(seen: list[str]) -> None:
    one = training()
    one.begin()
    one.begin_step()
    one.begin_step()  # the next micro-batch of the same step
    one.end_step()
    one.begin_evaluation()
    one.begin_evaluation()
    one.end_evaluation()
    one.begin_step()
    one.end()
    assert seen == ["step", "evaluation", "left", "step"]


def test_a_step_and_an_evaluation_end_each_other(seen: list[str]) -> None:
    one = training()
    one.begin_step()
    one.begin_evaluation()
    assert not phases.is_in_step()
    one.begin_step()
    assert seen == ["step", "evaluation", "left", "step"]
    one.end_step()


def test_ends_without_begins_do_nothing(seen: list[str]) -> None:
    one = training()
    one.end_step()
    one.end_evaluation()
    one.end()
    assert seen == []


def test_a_training_ends_the_one_that_failed(seen: list[str]) -> None:
    failed, other = training(), training()
    failed.begin()
    failed.begin_step()
    other.begin()
    assert not phases.is_in_step()
    failed.end()  # late: it is over, and ends nothing of the other one
    other.begin_step()
    assert phases.is_in_step()
    other.end()
    assert seen == ["step", "step"]


def test_a_training_that_nobody_holds_is_in_no_step(seen: list[str]) -> None:
    one = training()
    one.begin_step()
    del one
    assert seen == ["step"]


def test_accumulated_gradients_are_one_step(seen: list[str]) -> None:
    accelerator = Accelerator(every=3)
    with GmlakeTraining(accelerator) as loop:
        for _ in range(6):
            with loop.step():
                accelerator.batches += 1
    assert seen == ["step", "step"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_a_step_of_a_loop(seen: list[str], error: type[BaseException]) -> None:
    accelerator = Accelerator(every=2)
    loop = GmlakeTraining(accelerator)

    def fail() -> None:
        with loop:
            with suppress(LookupError), loop.step():
                accelerator.batches += 1
                raise LookupError
            assert not phases.is_in_step()
            with loop.evaluation():
                raise error

    for _ in range(2):  # the same object again
        with pytest.raises(error):
            fail()
    assert seen == ["step", "evaluation", "left"] * 2


def test_what_is_logged_without_a_device_is_left_as_it_is() -> None:
    accelerator = Accelerator()
    loop = GmlakeTraining(accelerator)
    with pytest.warns(gmlake.GmlakeWarning, match="CUDA is not in use, so memory is not logged"):
        loop.log({"loss": 1.0}, step=3)
    loop.log()
    assert accelerator.logged == [({"loss": 1.0}, 3), ({}, None)]


def test_a_training_without_gmlake_says_so_once() -> None:
    notices._said.discard("integrations")  # noqa: SLF001
    one = training()
    with pytest.warns(gmlake.GmlakeWarning, match="gmlake serves nothing here"):
        one.begin()
    one.end()
    one.begin()
    one.end()


def test_without_a_device_no_page_is_written_and_that_is_said(tmp_path: Path) -> None:
    page = tmp_path / "memory.html"
    one = training(page=page)
    with pytest.warns(gmlake.GmlakeWarning, match="memory.html will be written: "):
        one.begin()
    one.end()
    assert not page.exists()


def test_the_page_of_one_of_several_processes_has_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, name in (("4", "memory-rank3.html"), ("1", "memory.html")):
        monkeypatch.setenv("RANK", "3")
        monkeypatch.setenv("WORLD_SIZE", size)
        notices._said.discard("integrations page")  # noqa: SLF001
        one = training(page=tmp_path / "memory.html")
        with pytest.warns(gmlake.GmlakeWarning, match=f"/{name} will be written: "):
            one.begin()
        one.end()


def test_what_makes_no_sense_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
        training(page=tmp_path / "missing" / "memory.html")
    with pytest.raises(TypeError, match=r"accelerator is an accelerate\.Accelerator, not 7"):
        GmlakeTraining(7)


@pytest.mark.parametrize("name", ["transformers", "lightning"])
def test_a_trainer_that_is_not_installed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in (name, f"{name}.pytorch"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"gmlake.integrations.{name}", raising=False)
    with pytest.raises(ImportError) as raised:
        importlib.import_module(f"gmlake.integrations.{name}")
    assert str(raised.value) == f"gmlake.integrations.{name} needs {name}: pip install {name}"


def test_the_package_imports_nothing() -> None:
    code = (
        "import sys, gmlake.integrations\n"
        "print({'torch', 'transformers', 'lightning', 'accelerate'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == "set()\n"
