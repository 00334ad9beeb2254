"""Solving, profiles and plans through gmlake._core, and the steps of a lake."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.planner import _planner
from gmlake.planner.plan_layout import (
    LIFETIME,
)

if TYPE_CHECKING:
    from gmlake.trace.layout import Records

KIB = 1 << 10


def lifetimes(*rows: tuple[int, int, int]) -> Records:
    """Rows of size, start, end."""
    result = np.zeros(len(rows), LIFETIME)
    for column, values in zip(("size_bytes", "start", "end"), zip(*rows, strict=True), strict=True):
        result[column] = values
    return result


def random_lifetimes(seed: int, count: int) -> Records:
    chosen = random.Random(seed)  # noqa: S311 (the same each time)
    rows = []
    for _ in range(count):
        start = chosen.randrange(100)
        rows.append((chosen.randrange(1, 64 * KIB), start, start + chosen.randrange(1, 30)))
    return lifetimes(*rows)


def solve(problem: Records, **options: Any) -> tuple[_planner.Solution, Records]:
    offsets = np.zeros(len(problem), np.uint64)
    return _planner.solve(problem, offsets, **options), offsets


def overlaps(problem: Records, offsets: Records, alignment: int) -> bool:
    """Compare every pair: the truth, slowly."""
    sizes = -(-problem["size_bytes"].astype(np.int64) // alignment) * alignment
    begin, end = problem["start"], problem["end"]
    low = offsets.astype(np.int64)
    meets = (begin[:, None] < end) & (begin < end[:, None])
    meets &= (low[:, None] < low + sizes) & (low < (low + sizes)[:, None])
    np.fill_diagonal(meets, val=False)
    return bool(meets.any())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("alignment", [1, 512])
def test_solutions_are_placements(seed: int, alignment: int) -> None:
    problem = random_lifetimes(seed, 60)
    solution, offsets = solve(problem, alignment=alignment)
    assert not overlaps(problem, offsets, alignment)
    assert not (offsets % alignment).any()
    sizes = -(-problem["size_bytes"] // alignment) * alignment
    assert solution["peak_bytes"] == int((offsets + sizes).max())
    assert solution["lower_bound_bytes"] <= solution["peak_bytes"]
    assert re.fullmatch("[a-z-]+", solution["method"])


# ---- the steps of a lake


@pytest.fixture
def lake() -> gmlake.Lake:
    return gmlake.Lake("sim", "stitch", "1GiB")
