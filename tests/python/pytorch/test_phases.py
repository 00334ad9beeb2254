"""Where a step is, as hooks see it: told in order, and without a trace in the model."""

# mypy: allow-untyped-calls

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gmlake.pytorch import phases  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST, SECOND = (phases.number_of(phases.FORWARD, index) for index in (0, 1))
AFTER_FIRST, AFTER_SECOND, AFTER_UPDATE = (
    phases.number_of(phases.BETWEEN, index) for index in (0, 1, -1)
)
BACK_FIRST, BACK_SECOND = (phases.number_of(phases.BACKWARD, index) for index in (0, 1))
UPDATE = phases.number_of(phases.OPTIMIZER)


class Told:
    """What a watcher told."""

    def __init__(self) -> None:
        self.phases: list[int] = []
        self.scopes: list[int] = []

    def enter_phase(self, number: int) -> None:
        self.phases.append(number)

    def enter_scope(self, number: int) -> None:
        self.scopes.append(number)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watcher(told: Told) -> Iterator[phases.Watcher]:
    watcher = phases.Watcher(told, ["*experts"])
    watcher.watch_optimizers()
    yield watcher
    watcher.close()


class Layer(nn.Module):
    """A layer, a part of which is dynamic."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.experts = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.experts(self.dense(x))


class Model(nn.Module):
    """Layers; checkpointed or not."""

    def __init__(self, *, reenters: bool | None = None) -> None:
        super().__init__()
        self.reenters = reenters
        self.first, self.last = Layer(), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        for layer in (self.first, self.last):
            if self.reenters is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reenters)
        return x


def rows() -> Any:
    return torch.ones(2, 4, requires_grad=True)


@pytest.mark.parametrize("how", ["named", "found"])
@pytest.mark.parametrize("checkpoints", ["none", "reentrant", "other"])
def test_phases_come_in_order(
    told: Told, watcher: phases.Watcher, how: str, checkpoints: str
) -> None:
    reenters = None if checkpoints == "none" else checkpoints == "reentrant"
    model = Model(reenters=reenters)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher.discover_models() if how == "found" else watcher.watch_model(model)
    watcher.begin_step()
    for _ in range(2):
        nn.MSELoss()(model(rows()), rows()).backward()
    optimizer.step()
    watcher.end_step()
    passes = [FIRST, AFTER_FIRST, BACK_FIRST, SECOND, AFTER_SECOND, BACK_SECOND]
    assert told.phases == [*passes, UPDATE, AFTER_UPDATE]


def test_backward_after_both_forwards(told: Told, watcher: phases.Watcher) -> None:
    model = Model()
    watcher.watch_model(model)
    watcher.begin_step()
    (model(rows()).sum() + model(rows()).sum()).backward()
    passes = [FIRST, AFTER_FIRST, SECOND, AFTER_SECOND]
    assert told.phases[:4] == passes
    assert sorted(told.phases[4:]) == sorted([BACK_FIRST, BACK_SECOND])


def test_scopes_begin_and_end(told: Told, watcher: phases.Watcher) -> None:
    model = Model()
    watcher.watch_model(model)
    watcher.begin_step()
    model(rows()).sum().backward()
    name = "first.experts"
    forward, backward = (phases.number_of(name, way) for way in (phases.FORWARD, phases.BACKWARD))
    assert told.scopes == [forward, 0, backward, 0]


def test_outside_of_steps_nothing_is_told(told: Told, watcher: phases.Watcher) -> None:
    model = Model()
    watcher.watch_model(model)
    model(rows()).sum().backward()
    assert not told.phases
    assert not told.scopes


def test_a_pass_that_fails_does_not_disturb_the_next_step(
    told: Told, watcher: phases.Watcher
) -> None:
    model = Model()
    watcher.watch_model(model)
    watcher.begin_step()
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 5))
    watcher.end_step()
    told.phases.clear()
    watcher.begin_step()
    model(rows())
    assert told.phases == [FIRST, AFTER_FIRST]


def test_models_are_found_in_steps_only(watcher: phases.Watcher) -> None:
    watcher.discover_models()
    Model()(rows())
    assert not watcher.has_models


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_losses_and_scripts_are_no_models(watcher: phases.Watcher) -> None:
    script = torch.jit.trace(nn.Linear(4, 4), rows())
    watcher.discover_models()
    watcher.begin_step()
    nn.MSELoss()(script(rows()), rows())
    assert not watcher.has_models
    watcher.watch_model(script)


def test_copies_and_files_of_a_watched_model_are_free_of_it(
    told: Told, watcher: phases.Watcher
) -> None:
    model = Model()
    watcher.watch_model(model)
    data = pickle.dumps(model)
    assert b"gmlake" not in data
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(data), torch.load(file, weights_only=False)]
    copies.append(copy.deepcopy(copies[0]))
    watcher.begin_step()
    for other in copies:
        assert torch.equal(other(rows()), model(rows()))
    assert len(told.phases) == 2 * len(copies)
    assert len(told.scopes) == 2 * len(copies)


def test_nothing_is_left_behind(watcher: phases.Watcher) -> None:
    model = Model()
    leaf = rows()
    watcher.watch_model(model.first)
    for _ in range(3):
        watcher.begin_step()
        model.first.experts(leaf).sum().backward()
        watcher.end_step()
    assert not leaf._backward_hooks  # noqa: SLF001
    watcher.close()
    for module in model.modules():
        assert not module._forward_hooks  # noqa: SLF001
        assert not module._forward_pre_hooks  # noqa: SLF001


def test_compilers_see_no_hooks(watcher: phases.Watcher) -> None:
    model = Model()
    watcher.watch_model(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    watcher.begin_step()
    compiled(rows()).sum().backward()


@pytest.mark.parametrize("model", ["text", nn.Linear])
def test_a_model_is_a_module(watcher: phases.Watcher, model: Any) -> None:
    with pytest.raises(TypeError, match=r"a model is a torch\.nn\.Module, not"):
        watcher.watch_model(model)


def test_what_is_dynamic_is_named_or_given(told: Told) -> None:
    with pytest.raises(TypeError, match="dynamic has patterns and modules, not 3"):
        phases.Watcher(told, [3])  # type: ignore[list-item]
    model = Model()
    watcher = phases.Watcher(told, [model.last, "Model"])
    watcher.watch_model(model)
    watcher.begin_step()
    model(torch.ones(2, 4))
    assert told.scopes == [phases.number_of("last", phases.FORWARD), 0]
    watcher.close()
