"""Solving, checking, profiles and plans through gmlake._core, and the steps of a lake."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from developer import PAPER
from gmlake.planner import _planner
from gmlake.planner.plan_layout import (
    LIFETIME,
    ORDERING,
    PLAN_REQUEST,
    STEP_REQUEST,
    STILL_LIVE,
)
from made_plans import STEP, made_plan, step_requests

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
    _planner.check_placement(problem, offsets, solution["peak_bytes"], alignment=alignment)


def test_a_wrong_placement_is_a_plan_error() -> None:
    problem = lifetimes((1024, 0, 2), (1024, 1, 3))
    with pytest.raises(gmlake.PlanError):
        _planner.check_placement(problem, np.array([0, 512], np.uint64), 1536)
    with pytest.raises(gmlake.PlanError):
        _planner.check_placement(problem, np.array([0, 1024], np.uint64), 4096)
    _planner.check_placement(problem, np.array([0, 1024], np.uint64), 2048)


def test_a_period_wraps() -> None:
    problem = lifetimes((1024, 8, 12), (1024, 1, 3), (512, 5, 6))
    solution, offsets = solve(problem, period=10)
    assert solution["peak_bytes"] == 2048
    assert offsets[0] != offsets[1]
    _planner.check_placement(problem, offsets, 2048, period=10)


def test_streams_share_only_where_they_are_ordered() -> None:
    problem = lifetimes((4096, 0, 2), (4096, 4, 6))
    problem["stream"] = [1, 2]
    assert solve(problem)[0]["peak_bytes"] == 8192
    ordering = np.array([(3, 1, 2)], ORDERING)
    assert solve(problem, orderings=ordering)[0]["peak_bytes"] == 4096


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"size_bytes": 0}, "size"),
        ({"size_bytes": 1 << 49}, "size"),
        ({"end": 0}, "end"),
    ],
)
def test_lifetimes_outside_their_range_are_value_errors(change: dict[str, int], match: str) -> None:
    problem = lifetimes((1024, 0, 2), (1024, 1, 3))
    for column, value in change.items():
        problem[column][1] = value
    with pytest.raises(ValueError, match=match):
        solve(problem)


def test_buffers_of_wrong_shape_are_refused() -> None:
    problem = lifetimes((1024, 0, 2))
    offsets = np.zeros(1, np.uint64)
    with pytest.raises(ValueError, match="whole records of 48 bytes"):
        _planner.solve(b"x" * 63, offsets)
    with pytest.raises(ValueError, match="offsets must be one aligned uint64"):
        _planner.solve(problem, np.zeros(2, np.uint64))
    with pytest.raises((BufferError, ValueError)):
        _planner.solve(problem, b"x" * 8)
    with pytest.raises(ValueError, match="2 offsets for 1 lifetimes"):
        _planner.check_placement(problem, np.zeros(2, np.uint64), 0)
    with pytest.raises(ValueError, match="budget_ms"):
        _planner.solve(problem, offsets, budget_ms=-1)
    with pytest.raises(TypeError):
        _planner.solve(problem)  # type: ignore[call-arg]


def test_nothing_to_place_is_no_memory() -> None:
    solution, _ = solve(np.zeros(0, LIFETIME))
    assert solution["peak_bytes"] == solution["lower_bound_bytes"] == 0


# ---- profiles and plans


def test_a_plan_is_built_from_records() -> None:
    plan = made_plan()
    told = plan.describe()
    assert (told["requests"], told["placed"], told["steps"], told["lanes"]) == (3, 3, 1, 1)
    assert told["peak_bytes"] == told["lower_bound_bytes"] == 5120
    rows = np.frombuffer(plan.requests(), PLAN_REQUEST)
    assert rows["size_bytes"].tolist() == [4096, 1024, 2048]
    assert rows["start"].tolist() == [0, 1, 4]
    assert rows["end"].tolist() == [3, 2, 5]
    assert rows["offset"].tolist()[0] != rows["offset"].tolist()[1]


def test_what_is_freed_in_the_next_step_wraps() -> None:
    rows = [(4096, 0, 1, 1), (1024, 1, STILL_LIVE, 0)]
    before = [(4096, 0, 1, 0), (1024, 1, 2, 1)]
    profile = _planner.Profile(
        step_requests(rows), 3, step_requests(before), 2, serial=1, previous_serial=0
    )
    assert profile.event_count == 3
    assert profile.previous_event_count == 2
    assert profile.serial == 1
    told = _planner.Plan.build(profile).describe()
    assert told["placed"] in (1, 2, 4)
    assert told["lower_bound_bytes"] <= told["peak_bytes"]


def test_a_profile_gives_back_what_it_was_given() -> None:
    rows = step_requests(STEP)
    profile = _planner.Profile(rows, 6)
    assert profile.requests() == rows.tobytes()
    assert profile.previous_requests() == b""
    assert profile.request_count == 3


def test_profiles_that_make_no_sense_are_value_errors() -> None:
    with pytest.raises(ValueError, match="40 bytes"):
        _planner.Profile(b"x" * 55, 1)
    with pytest.raises(TypeError, match="requests of a step"):
        _planner.Profile(None, 1)  # type: ignore[arg-type]
    for rows, events in (([], 0), ([(512, 9, 10, 1)], 4), ([(512, 1, 1, 1)], 4)):
        profile = _planner.Profile(step_requests(rows) if rows else b"", events)
        with pytest.raises(ValueError, match=r"\w"):
            _planner.Plan.build(profile)
    with pytest.raises(TypeError, match="Profile"):
        _planner.Plan.build(b"profile")  # type: ignore[arg-type]


def test_plans_are_made_by_build_and_decode_only() -> None:
    with pytest.raises(TypeError):
        _planner.Plan()
    with pytest.raises(TypeError):

        class _Mine(_planner.Plan):  # type: ignore[misc]
            pass


def test_a_plan_survives_encoding() -> None:
    plan = made_plan()
    data = plan.encode()
    again = _planner.Plan.decode(data)
    assert again.encode() == data
    assert again.requests() == plan.requests()
    assert {**again.describe(), "time_ns": 0} == {**plan.describe(), "time_ns": 0}


def test_damaged_plans_are_plan_errors() -> None:
    data = made_plan().encode()
    for place in range(len(data)):
        bad = bytearray(data)
        bad[place] ^= 0x41
        with pytest.raises(gmlake.PlanError) as caught:
            _planner.Plan.decode(bad)
        assert "\n" not in str(caught.value)
        with pytest.raises(gmlake.PlanError):
            _planner.Plan.decode(data[:place])
    with pytest.raises(gmlake.PlanError):
        _planner.Plan.decode(data + b"\0")


# ---- the steps of a lake


@pytest.fixture
def lake() -> gmlake.Lake:
    return gmlake.Lake("sim", "stitch", "1GiB")


def run_step(lake: gmlake.Lake) -> _planner.StepReport:
    _planner.begin_step(lake, 7)
    first = lake.allocate(8 << 20)
    second = lake.allocate(4 << 20)
    lake.free(first)
    third = lake.allocate(6 << 20)
    lake.free(second)
    lake.free(third)
    return _planner.end_step(lake)


def test_a_lake_is_watched_planned_and_served(lake: gmlake.Lake) -> None:
    _planner.watch_steps(lake)
    watched = run_step(lake)
    assert (watched["kind"], watched["requests"], watched["served"]) == (7, 3, 0)
    assert watched["why"] == "watched: its requests are new"
    profile = _planner.profile(lake, 7)
    assert isinstance(profile, gmlake.Profile)
    rows = np.frombuffer(profile.requests(), STEP_REQUEST)
    assert rows["size_bytes"].tolist() == [8 << 20, 4 << 20, 6 << 20]
    assert profile.event_count == 6
    plan = gmlake.Plan.build(profile)
    _planner.add_plan(lake, 7, gmlake.Plan.decode(plan.encode()))
    for _ in range(3):
        served = run_step(lake)
        assert served["served"] == 3
        assert served["why"].startswith("planned: ")
    assert served["driver_calls"] == 0
    lake.check()
    stats = _planner.plan_stats(lake)
    assert (stats["steps"], stats["planned_steps"], stats["served"]) == (4, 3, 9)
    _planner.drop_plans(lake, 7)
    assert run_step(lake)["served"] == 0
    lake.close()


def test_steps_in_the_wrong_order_are_value_errors(lake: gmlake.Lake) -> None:
    with pytest.raises(ValueError, match="watch_steps"):
        _planner.begin_step(lake, 0)
    _planner.watch_steps(lake)
    _planner.watch_steps(lake)
    with pytest.raises(ValueError, match="no step is open"):
        _planner.end_step(lake)
    with pytest.raises(ValueError, match="no step of that kind"):
        _planner.profile(lake, 3)
    with pytest.raises(ValueError, match="kind"):
        _planner.profile(lake, 1 << 64)
    with pytest.raises(ValueError, match="kind"):
        _planner.begin_step(lake, -1)
    with pytest.raises(TypeError, match="Plan"):
        _planner.add_plan(lake, 0, b"")  # type: ignore[arg-type]
    lake.close()
    for call in (_planner.watch_steps, _planner.end_step, _planner.plan_stats):
        with pytest.raises(ValueError, match="closed"):
            call(lake)
    with pytest.raises(TypeError, match="a Lake is needed"):
        _planner.plan_stats("lake")  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["caching", "expandable", PAPER])
def test_policies_without_plans_say_so(policy: str) -> None:
    with gmlake.Lake("sim", policy, "1GiB") as lake:
        with pytest.raises(gmlake.UnsupportedError):
            _planner.watch_steps(lake)
        lake.mark()  # nothing, as documented
