"""Traces as problems: lifetimes, orderings, and the steps that a trace repeats."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake.planner import lifetimes, periods
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace.layout import Kind
from plans import MIB, Script, training

if TYPE_CHECKING:
    from gmlake.trace import Trace


@pytest.mark.parametrize("steps", [0, 1])
def test_what_does_not_repeat_has_no_steps(steps: int) -> None:
    assert len(periods.find_steps(training(steps).trace())) == 0


def test_of_too_many_orderings_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    for stream in (1, 2) * 40:
        script.free(script.alloc(1 * MIB, stream=stream))
        script.event(Kind.TRIM)
    monkeypatch.setattr(lifetimes, "MAX_ORDERINGS", 20)
    times = lifetimes.orderings_of(script.trace())["time"]
    assert len(times) == 20
    assert (times[0], times[-1]) == (2, 160)


def many_streams(seed: int) -> Trace:
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
    (planned,) = gmlake.plan(of_one_trace(trace)).results
    (replayed,) = gmlake.replay(of_one_trace(trace), policies=["caching"]).results
    assert planned.peak_bytes <= replayed.peak_reserved_bytes
    assert planned.live_bytes == replayed.peak_live_bytes
    assert planned.ratio < 1.03
