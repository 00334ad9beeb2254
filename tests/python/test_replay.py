"""Replay: what a report says, and the promises that can be read off it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

import gmlake
from gmlake import _core
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace import REQUEST, Kind, Trace
from places import SHIPPED, VARYING
from recording import BASE, MIB, alloc, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
GROWTH_STEP = 2 * MIB
"""A growth step is one chunk."""


@st.composite
def programs(draw: st.DrawFn) -> Trace:
    """Allocations and frees in any order, sizes from bytes to tens of MiB, one or two streams."""
    rows: list[tuple[int, ...]] = []
    live: list[int] = []
    streams = draw(st.sampled_from([1, 1, 2]))
    any_size = st.integers(1, 3 * MIB) | st.integers(1, 60 * MIB)
    sizes = draw(st.lists(any_size, min_size=1, max_size=8))
    used = 0
    for _ in range(draw(st.integers(1, 60))):
        is_free = draw(st.booleans())
        if live and is_free:
            number = live.pop(draw(st.integers(0, len(live) - 1)))
            rows.append((number, 0, 0, 0, 0, Kind.FREE, 0))
        else:
            stream = draw(st.integers(0, streams - 1))
            rows.append((used, draw(st.sampled_from(sizes)), 0, 0, stream, Kind.ALLOC, 0))
            live.append(used)
            used += 1
    return Trace(np.array(rows, REQUEST), name="program")


def test_peak_live_agrees_with_the_trace(shipped_trace: Trace) -> None:
    for result in gmlake.replay(of_one_trace(shipped_trace)).results:
        assert result.peak_live_bytes == shipped_trace.peak_live_bytes
        assert result.events == len(shipped_trace.requests)
        assert result.allocations == shipped_trace.id_count == sum(result.states.values())
        assert result.states["oom"] == 0
        assert 0 < result.utilization <= 1


def test_a_small_device_refuses(shipped_trace: Trace) -> None:
    half = shipped_trace.peak_live_bytes // 2
    for result in gmlake.replay(of_one_trace(shipped_trace), capacity=half).results:
        assert result.peak_reserved_bytes <= half
        assert result.states["oom"] > 0
        assert result.allocations == sum(result.states.values())


def test_slices_and_progress_change_nothing(
    shipped_trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gmlake.replay(of_one_trace(shipped_trace), "stitch").results[0]
    monkeypatch.setattr("gmlake.trace.trace.SLICE_EVENTS", 997)
    seen: list[int] = []
    sliced = gmlake.replay(of_one_trace(shipped_trace), "stitch", progress=seen.append).results[0]
    assert sum(seen) == len(shipped_trace.requests)
    assert max(seen) == 997
    assert (sliced.peak_reserved_bytes, sliced.states) == (whole.peak_reserved_bytes, whole.states)


def test_knobs_reach_the_policy() -> None:
    trace = gmlake.load(snapshot([alloc(BASE, 3 * MIB)])).devices[0].trace
    result = gmlake.replay(of_one_trace(trace), "stitch", chunk_size="64MiB").results[0]
    assert result.peak_reserved_bytes == 64 * MIB
    with pytest.raises(ValueError, match="nonsense"):
        gmlake.replay(of_one_trace(trace), "stitch", nonsense=1)


# ---- promise 7: stitch never holds more than caching and one growth step


def check_promise_7(trace: Trace) -> None:
    caching, stitch = gmlake.replay(of_one_trace(trace), "caching,stitch").results
    assert stitch.peak_reserved_bytes <= caching.peak_reserved_bytes + GROWTH_STEP


@given(programs())
def test_stitch_holds_no_more_than_caching(trace: Trace) -> None:
    check_promise_7(trace)


def test_stitch_holds_no_more_than_caching_on_shipped_traces(shipped_trace: Trace) -> None:
    check_promise_7(shipped_trace)


@pytest.mark.parametrize("path", [*SHIPPED, *VARYING], ids=lambda path: path.stem)
def test_with_room_stitch_holds_hardly_more_than_the_better_of_pytorchs(path: Path) -> None:
    theirs, others, ours = gmlake.replay(
        of_one_trace(gmlake.load(path).devices[0].trace),
        "caching,expandable,stitch",
        capacity="80GiB",
    ).results
    lesser = min(theirs.peak_reserved_bytes, others.peak_reserved_bytes)
    assert ours.peak_reserved_bytes <= lesser + 64 * MIB


# ---- promise 8: what was served once is served again without the driver


def driver_calls_of_repetitions(trace: Trace, policy: str, count: int) -> list[dict[str, int]]:
    requests = trace.replay_requests()
    requests = requests[requests["kind"] != Kind.TRIM]
    born, gone = (requests[requests["kind"] == kind] for kind in (Kind.ALLOC, Kind.FREE))
    left = born[~np.isin(born["id"], gone["id"])]
    left["kind"], left["pool"] = Kind.FREE, 0
    requests = np.concatenate([requests, left])
    calls = []
    with gmlake.Lake("sim", policy, "1TiB") as lake:
        run = _core.Replay(lake, trace.id_count)
        for _ in range(count):
            before = lake.stats()["driver_calls"]
            run.run(requests.view(np.uint8))
            after = lake.stats()["driver_calls"]
            calls.append({name: after[name] - before[name] for name in after})
        lake.check()
    return calls


def check_promise_8(trace: Trace) -> None:
    """The home space grows for the last time, one repetition makes views, and then none calls."""
    first, *_, last = driver_calls_of_repetitions(trace, "stitch", 10)
    assert sum(first.values()) > 0
    assert {name: made for name, made in last.items() if made} == {}


@given(programs().filter(lambda trace: not trace.requests["stream"].any()))
def test_repetitions_come_to_call_no_driver(trace: Trace) -> None:
    check_promise_8(trace)


def test_repetitions_come_to_call_no_driver_on_shipped_traces(shipped_trace: Trace) -> None:
    check_promise_8(shipped_trace)


# ---- the extension's Replay


def one(kind: int, number: int, size: int = 512) -> bytes:
    return np.array([(number, size, 0, 0, 0, kind, 0)], REQUEST).tobytes()


# ---- private pools


def of_graphs(batches: Iterable[int], pools: int = 1) -> Trace:
    """Graphs of ascending sizes, each of which leaves an output, in this many pools."""
    rows: list[tuple[int, ...]] = []
    for number, batch in enumerate(batches):
        first, pool = 3 * number, number % pools + 1
        sizes = (20 * batch * MIB, 30 * batch * MIB, batch * MIB)
        rows += [
            (first, sizes[0], 0, 0, 7, Kind.ALLOC, pool),
            (first + 1, sizes[1], 0, 0, 7, Kind.ALLOC, pool),
            (first, 0, 0, 0, 0, Kind.FREE, 0),
            (first + 2, sizes[2], 0, 0, 7, Kind.ALLOC, pool),
            (first + 1, 0, 0, 0, 0, Kind.FREE, 0),
        ]
    return Trace(np.array(rows, REQUEST), pools=tuple((0, n) for n in range(1, pools + 1)))


@pytest.mark.long
def test_very_many_pools_are_served() -> None:
    report = gmlake.replay(
        of_one_trace(of_graphs([1] * 600, 600)), ["caching", "expandable", "stitch"]
    )
    assert [result.first_refused for result in report.results] == [None] * 3
