"""Traces as problems: lifetimes, orderings, and the steps that a trace repeats."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gmlake
from gmlake.planner import lifetimes, periods, profiles
from gmlake.planner.plan_layout import STEP_REQUEST, STILL_LIVE
from gmlake.trace.layout import START_BLOCK, Kind
from places import RECORDINGS
from plans import KIB, MIB, Script, train, training

PER_STEP = 12 * 3 + 1 + 12 * 2 + 12


def test_a_training_step_is_found_and_not_its_layers() -> None:
    trace = training(5).trace()
    steps = periods.find_steps(trace)
    assert not steps.are_marked
    assert len(steps) >= 3
    kind = trace.requests["kind"]
    for first, last in zip(steps.boundaries[:-1], steps.boundaries[1:], strict=True):
        assert np.count_nonzero(kind[first:last] == Kind.ALLOC) == PER_STEP


def test_steps_begin_where_the_fewest_bytes_live() -> None:
    trace = training(6).trace()
    steps = periods.find_steps(trace)
    course = periods.Course(trace)
    rows = {int(row): i for i, row in enumerate(course.rows)}
    lowest = min(course.live[20 + PER_STEP : 20 + 3 * PER_STEP])
    assert course.live[rows[int(steps.boundaries[1])]] == lowest


@pytest.mark.parametrize("steps", [0, 1])
def test_what_does_not_repeat_has_no_steps(steps: int) -> None:
    assert len(periods.find_steps(training(steps).trace())) == 0


def test_random_requests_have_no_steps() -> None:
    chosen = random.Random(1)  # noqa: S311 (the same each time)
    script = Script()
    live: list[int] = []
    for _ in range(600):
        live.append(script.alloc(chosen.randrange(1, 1 << 20)))
        if len(live) > 10:
            script.free(live.pop(chosen.randrange(len(live))))
    assert len(periods.find_steps(script.trace())) == 0


def test_a_layer_that_keeps_a_little_is_no_step() -> None:
    script = Script()
    for _ in range(40):
        script.alloc(2 * MIB)
        work = [script.alloc(size * MIB) for size in range(1, 30)]
        for number in work:
            script.free(number)
    assert len(periods.find_steps(script.trace())) == 0


def test_a_request_that_differs_does_not_hide_the_steps() -> None:
    script = Script()
    kept: list[int] = []
    for step in range(8):
        kept = train(script, kept=kept)
        script.free(script.alloc(64 * KIB if step % 4 else 80 * KIB))
    steps = periods.find_steps(script.trace())
    assert len(steps) >= 5


def test_marks_are_the_steps_where_there_are_any() -> None:
    script = training(2)
    for _ in range(3):
        script.event(Kind.MARK)
        train(script)
    trace = script.trace()
    steps = periods.find_steps(trace)
    assert steps.are_marked
    assert len(steps) == 2
    assert periods.with_marks(trace) is trace


def test_marks_are_put_where_steps_were_found() -> None:
    trace = training(6).trace()
    marked = periods.with_marks(trace)
    marked.check()
    found = periods.find_steps(marked)
    assert found.are_marked
    before = periods.find_steps(trace)
    shifted = before.boundaries + np.arange(len(before.boundaries))
    assert found.boundaries.tolist() == shifted.tolist()
    without = marked.requests[marked.requests["kind"] != Kind.MARK]
    assert np.array_equal(without, trace.requests)


# ---- lifetimes


def test_lifetimes_follow_the_events() -> None:
    script = Script()
    first, second = script.alloc(100), script.alloc(0)
    third = script.alloc(600, stream=3)
    script.free(second)
    script.free(first)
    script.ids += 1
    script.rows.append((3, 0, 0, 0, 0, Kind.FREE, 0))
    start = np.array([(3, 4096, 1024, 1000, 5)], START_BLOCK)
    found = lifetimes.lifetimes_of(script.trace(start_blocks=start))
    assert found["tag"].tolist() == [3, first, third]
    assert found["size_bytes"].tolist() == [1024, 512, 1024]
    assert found["stream"].tolist() == [5, 0, 3]
    assert found["start"].tolist() == [0, 1, 2]
    assert found["end"].tolist() == [4, 3, 5]


def test_a_freed_block_makes_room_for_the_next_one() -> None:
    script = Script()
    for _ in range(5):
        script.free(script.alloc(1 * MIB))
    (result,) = gmlake.plan(script.trace()).results
    assert result.peak_bytes == 1 * MIB


@pytest.mark.parametrize("is_expandable", [False, True])
def test_segments_given_back_order_all_streams(is_expandable: bool) -> None:  # noqa: FBT001
    script = Script()
    script.free(script.alloc(1 * MIB, stream=1))
    script.event(Kind.SEGMENT_FREE)
    script.event(Kind.SEGMENT_FREE)
    script.free(script.alloc(1 * MIB, stream=2))
    trace = script.trace()
    trace.is_expandable = is_expandable
    found = lifetimes.orderings_of(trace)
    assert found["time"].tolist() == [2, 2]
    assert sorted(zip(found["before"].tolist(), found["after"].tolist(), strict=True)) == [
        (1, 2),
        (2, 1),
    ]
    (result,) = gmlake.plan(trace).results
    assert result.peak_bytes == 1 * MIB
    assert (result.streams, result.ordered_moments) == (2, 1)


def test_an_emptied_cache_orders_all_streams() -> None:
    script = Script()
    script.free(script.alloc(1 * MIB, stream=1))
    script.event(Kind.TRIM)
    script.free(script.alloc(1 * MIB, stream=2))
    assert len(lifetimes.orderings_of(script.trace())) == 2
    (result,) = gmlake.plan(script.trace()).results
    assert result.peak_bytes == result.live_bytes == 1 * MIB


def test_one_stream_needs_no_order() -> None:
    script = Script()
    script.free(script.alloc(1 * MIB))
    script.event(Kind.TRIM)
    script.free(script.alloc(1 * MIB))
    assert len(lifetimes.orderings_of(script.trace())) == 0


def test_of_too_many_orderings_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    for stream in (1, 2) * 40:
        script.free(script.alloc(1 * MIB, stream=stream))
        script.event(Kind.TRIM)
    monkeypatch.setattr(lifetimes, "MAX_ORDERINGS", 20)
    times = lifetimes.orderings_of(script.trace())["time"]
    assert len(times) == 20
    assert (times[0], times[-1]) == (2, 160)


def many_streams(seed: int) -> gmlake.Trace:
    """Return requests of some sizes on up to ten streams; now and then the cache is emptied."""
    draw = random.Random(seed)  # noqa: S311
    script = Script()
    live: list[int] = []
    sizes = [draw.choice((1, 3, 40)) * draw.randint(1, 40) * MIB // 4 for _ in range(8)]
    streams = draw.choice((2, 5, 10))
    trims = draw.choice((0.0, 0.005, 0.05))
    for _ in range(600):
        if draw.random() < trims:
            script.event(Kind.TRIM)
        elif len(live) > 30 or (live and draw.random() < 0.5):
            script.free(live.pop(draw.randrange(len(live))))
        else:
            live.append(script.alloc(draw.choice(sizes), stream=draw.randrange(streams)))
    return script.trace()


@pytest.mark.parametrize("seed", range(12))
def test_streams_are_never_planned_above_what_caching_reserves(seed: int) -> None:
    trace = many_streams(seed)
    (planned,) = gmlake.plan(trace).results
    (replayed,) = gmlake.replay(trace, policies=["caching"]).results
    assert planned.peak_bytes <= replayed.peak_reserved_bytes
    assert planned.live_bytes == replayed.peak_live_bytes
    assert planned.ratio < 1.03


def test_what_a_lack_of_order_costs_is_said() -> None:
    script = Script()
    for stream in (1, 2, 1, 2):
        script.free(script.alloc(30 * MIB, stream=stream))
    (result,) = gmlake.plan(script.trace()).results
    assert (result.live_bytes, result.lower_bound_bytes) == (30 * MIB, 60 * MIB)
    text = str(gmlake.plan(script.trace()))
    assert "no moment orders its 2 streams" in text
    assert "30.0 MiB of the bound" in text
    script.event(Kind.TRIM)
    script.free(script.alloc(30 * MIB, stream=1))
    assert "1 moment orders its 2 streams" in str(gmlake.plan(script.trace()))
    alone = Script()
    alone.free(alone.alloc(30 * MIB))
    assert "streams" not in str(gmlake.plan(alone.trace()))


# ---- profiles


def test_a_profile_knows_what_was_known_at_the_end_of_its_step() -> None:
    script = Script()
    kept: list[int] = []
    for _ in range(3):
        script.event(Kind.MARK)
        work = script.alloc(4 * KIB)
        for number in kept:
            script.free(number)
        kept = [script.alloc(8 * KIB)]
        script.free(work)
    script.event(Kind.MARK)
    script.free(kept[0])
    trace = script.trace()
    chosen = profiles.profile_of(trace, periods.find_steps(trace))
    assert chosen is not None
    assert (chosen.alike, chosen.events) == (3, 4)
    assert chosen.first_event == int(np.flatnonzero(trace.requests["kind"] == Kind.MARK)[2])
    last = np.frombuffer(chosen.profile.requests(), STEP_REQUEST)
    assert last["birth"].tolist() == [0, 2]
    assert last["death"].tolist() == [3, STILL_LIVE]
    before = np.frombuffer(chosen.profile.previous_requests(), STEP_REQUEST)
    assert before["death"].tolist() == [3, 1]
    assert before["death_serial"].tolist() == [1, 2]
    told = gmlake.Plan.build(chosen.profile).describe()
    assert told["placed"] == told["requests"]


def test_what_is_freed_in_a_step_of_another_kind_was_freed_before_it() -> None:
    script = Script()
    for _ in range(3):
        script.event(Kind.MARK)
        kept = script.alloc(8 * KIB)
        script.event(Kind.MARK)
        script.free(script.alloc(1 * KIB))
        script.free(kept)
    script.event(Kind.MARK)
    trace = script.trace()
    watched = profiles.Watched(trace, periods.find_steps(trace))
    assert watched.kinds.tolist() == [0, 1, 0, 1, 0, 1]
    rows = watched.requests_of(2, until=5)
    assert rows["death"].tolist() == [1]
    assert rows["death_serial"].tolist() == [1]


def test_the_shipped_traces_have_steps(shipped_trace: gmlake.Trace) -> None:
    steps = periods.find_steps(shipped_trace)
    assert steps.are_marked
    without = shipped_trace.requests[shipped_trace.requests["kind"] != Kind.MARK]
    found = periods.find_steps(gmlake.Trace(without))
    if "varying" in shipped_trace.name:
        assert len(found) == 0
        return
    marked = [
        np.count_nonzero(shipped_trace.requests["kind"][a:b] == Kind.ALLOC)
        for a, b in zip(steps.boundaries[-3:-1], steps.boundaries[-2:], strict=True)
    ]
    again = [
        np.count_nonzero(without["kind"][a:b] == Kind.ALLOC)
        for a, b in zip(found.boundaries[:-1], found.boundaries[1:], strict=True)
    ]
    assert again == marked


@pytest.mark.recordings
def test_recorded_training_of_one_step_has_no_shorter_one() -> None:
    path = RECORDINGS / "traces" / "lm-medium-train-ctx1024.pickle"
    assert len(periods.find_steps(gmlake.load_trace(path))) == 0
