"""Who asked for memory: places by module, phase and call path, and categories by rules."""

# mypy: allow-untyped-calls, allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gmlake.pytorch import call_sites, scopes  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


class Told:
    """Instead of the core: the site of each thread, and the marks."""

    def __init__(self) -> None:
        self.table = call_sites.Table()
        self.numbers: dict[int, int] = {}
        self.marks: list[int] = []
        self.tracker = scopes.Tracker(self.table, self.set_site, self.marks.append)

    def set_site(self, number: int) -> None:
        self.numbers[threading.get_ident()] = number

    def site(self) -> call_sites.Site:
        """Where the calling thread is."""
        return self.table.sites()[self.numbers.get(threading.get_ident(), 0)]

    def here(self) -> tuple[str, str]:
        return self.site()[:2]

    def labels(self) -> list[str]:
        labels = self.table.labels()
        return [labels[number] for number in self.marks]


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    told.tracker.start()
    yield told
    told.tracker.stop()


def rows() -> Any:
    return torch.ones(2, 4, requires_grad=True)


@pytest.mark.filterwarnings("ignore:Using .torch.compile:UserWarning")
def test_compilers_see_no_hooks(told: Told) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(rows()).sum().backward()
    assert told.labels() == ["forward", "between", "backward", "between"]
    assert {site.scope for site in told.table.sites().values()} == {"", "Sequential"}
