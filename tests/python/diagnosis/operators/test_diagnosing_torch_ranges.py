"""Which bytes each operator of PyTorch is said to access."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

from operator_traces import Recorded, Seen, record  # noqa: E402


def last(recorded: Recorded, name: str = "matrix") -> Seen:
    return recorded.accesses(name)[-1]


def matrix_in(function: Any, *shape: int, **options: Any) -> Seen:
    """The last access to a matrix of zeros that a function is given."""

    def run() -> None:
        matrix = torch.zeros(*(shape or (2, 3)))
        function(matrix)

    return last(record(run, **options))


def test_a_block_of_three_levels_is_several_runs() -> None:
    counts = matrix_in(lambda cube: cube[:, ::2, ::2].sum(), 2, 3, 3).counts
    plane = (1, 0, 1, 0, 0, 0, 1, 0, 1)
    assert counts == plane + plane
