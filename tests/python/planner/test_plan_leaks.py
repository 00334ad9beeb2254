"""Every entry point of the planner's extension, many times: memory must not grow."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
from gmlake.planner import _planner
from gmlake.planner.plan_layout import LIFETIME, ORDERING
from leaks import check_growth

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def use_planner() -> None:
    problem, offsets = np.zeros(2, LIFETIME), np.zeros(2, np.uint64)
    problem["size_bytes"], problem["end"] = 512, 1
    ordering = np.array([(5, 1, 2)], ORDERING)
    found = _planner.solve(problem, offsets, orderings=ordering)
    _planner.check_placement(problem, offsets, found["peak_bytes"], orderings=ordering)


def use_steps() -> None:
    with gmlake.Lake() as lake:
        _planner.watch_steps(lake)
        for _ in range(3):
            _planner.begin_step(lake, 1)
            lake.free(lake.allocate(MIB))
            _planner.end_step(lake)
            profile = _planner.profile(lake, 1)
            plan = _planner.Plan.build(profile, budget_ms=1)
            _planner.add_plan(lake, 1, _planner.Plan.decode(plan.encode()))
            _ = (plan.describe(), plan.requests(), _planner.plan_stats(lake))
        _planner.drop_plans(lake, 1)
        again = _planner.Profile(profile.requests(), profile.event_count)
        _ = (again.previous_requests(), again.request_count)
        _ = (again.serial, again.previous_event_count)
    with gmlake.Lake(policy="plan") as lake:
        lake.mark()
        lake.mark()


def use_wrongly() -> None:
    with gmlake.Lake() as lake:
        wrong: list[Callable[[], object]] = [
            lambda: _planner.solve(b"x", b""),
            lambda: _planner.solve(bytes(48), np.zeros(1, np.uint64)),
            lambda: _planner.solve(b"", b"", orderings=b"x"),
            lambda: _planner.solve(b"", np.zeros(1, np.uint64)),
            lambda: _planner.check_placement(bytes(48), b"", 0),
            lambda: _planner.check_placement(bytes(48), bytes(8), 0),
            lambda: _planner.Profile(b"x", 0),
            lambda: _planner.Profile(bytes(40), 0, b"x"),
            lambda: _planner.Plan.build(_planner.Profile(bytes(40), 0)),
            lambda: _planner.Plan.decode(b"x"),
            lambda: _planner.begin_step(lake, 0),
            lambda: _planner.profile(lake, 0),
            lambda: _planner.add_plan(lake, 0, 5),  # type: ignore[arg-type]
            lambda: _planner.begin_step(lake, 0),
            lambda: _planner.end_step(lake),
            lambda: _planner.profile(lake, 0),
            lambda: _planner.add_plan(lake, 0, 5),  # type: ignore[arg-type]
            lambda: _planner.plan_stats(3),  # type: ignore[arg-type]
        ]
        for use in wrong:
            with contextlib.suppress(gmlake.Error, ValueError, TypeError, MemoryError):
                use()
                pytest.fail("this should have been refused")


@pytest.mark.parametrize("use", [use_planner, use_steps, use_wrongly])
def test_memory_does_not_grow(use: Callable[[], None]) -> None:
    check_growth(use)


def test_every_entry_point_is_used_above() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for owner in (_planner, _planner.Profile, _planner.Plan):
        for name in vars(owner):
            if not name.startswith("_"):
                assert f".{name}" in text, name
