"""Phases by name and steps, as listeners are told of them; hooks that leave the model alone."""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gmlake  # noqa: E402
from gmlake.pytorch import phases  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


class Told:
    """What a listener was told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.named: list[phases.Named] = []

    def enter_named(self, named: phases.Named) -> None:
        self.seen.append(named.name)
        self.named.append(named)

    def leave_named(self) -> None:
        self.seen.append("left")

    def step_begins(self) -> None:
        self.seen.append("step")


@pytest.fixture
def told() -> Iterator[Told]:
    listener = Told()
    phases.add_listener(listener)
    yield listener
    phases.remove_listener(listener)
    phases.remove_listener(listener)  # a second time is harmless


def test_phases_are_told_by_name(told: Told) -> None:
    with gmlake.phase("forward"):
        assert told.seen == ["forward"]
        assert not told.named[0].is_over
    with pytest.raises(KeyError), gmlake.phase("backward"):
        raise KeyError
    assert told.seen == ["forward", "left", "backward", "left"]
    assert all(named.is_over for named in told.named)


def test_steps_are_told_and_counted(told: Told) -> None:
    one, other = object(), object()
    assert not phases.is_in_step()
    phases.begin_step(one)
    phases.begin_step(other)
    assert told.seen == ["step", "step"]
    phases.end_step(one)
    phases.end_step(one)
    assert phases.is_in_step()
    phases.end_steps()
    assert not phases.is_in_step()


def hooked() -> tuple[nn.Module, list[object]]:
    """Return a model with a hook, and what the hook was called with."""
    calls: list[object] = []
    model = nn.Sequential(nn.Linear(4, 4))
    model.register_forward_pre_hook(phases.Hook(lambda module, _inputs: calls.append(module)))
    return model, calls


def test_copies_and_files_of_a_hooked_model_are_free_of_the_hook() -> None:
    model, calls = hooked()
    data = pickle.dumps(model)
    assert b"gmlake" not in data
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(data), torch.load(file, weights_only=False)]
    copies.append(copy.deepcopy(copies[0]))
    for other in copies:
        assert torch.equal(other(torch.ones(2, 4)), model(torch.ones(2, 4)))
    assert calls == [model] * len(copies)


def test_compilers_see_no_hooks() -> None:
    model, _calls = hooked()
    torch.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 4)).sum().backward()
