"""Phases by name and steps, as listeners are told of them; hooks that leave the model alone."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

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


def hooked() -> tuple[nn.Module, list[object]]:
    """Return a model with a hook, and what the hook was called with."""
    calls: list[object] = []
    model = nn.Sequential(nn.Linear(4, 4))
    model.register_forward_pre_hook(phases.Hook(lambda module, _inputs: calls.append(module)))
    return model, calls


def test_compilers_see_no_hooks() -> None:
    model, _calls = hooked()
    torch.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 4)).sum().backward()
