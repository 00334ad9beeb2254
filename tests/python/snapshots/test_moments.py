"""The moment that matters, who strands memory, and where blocks lay, in four scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gmlake
import scenarios
from gmlake.pictures.figures import (
    AddressMap,
    Blocks,
    Moment,
    Moments,
    Packing,
    Piece,
    Report,
    Timeline,
)
from gmlake.snapshots import report_of
from recording import BASE, MIB, alloc, event, figure, load, snapshot
from snapshot_programs import busy_lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _shown(report: Report) -> Moment:
    moments = figure(report, Moments)
    return moments.moments[moments.shown]


def _pieces(report: Report, moment: int, kind: str) -> list[Piece]:
    drawn = figure(report, AddressMap)
    found = [p for row in drawn.rows for p in row if p.kind == kind and p.first <= moment < p.end]
    return sorted(found, key=lambda piece: piece.address)


def _topped(report: Report) -> float:
    packing = figure(report, Packing)
    return float((packing.offset + packing.size).max())


# ---- a refusal in fragmented memory


@pytest.fixture
def fragmented(tmp_path: Path) -> Report:
    return load(tmp_path, scenarios.fragmented()).report()


def test_the_headline_is_the_refusal_though_everything_was_freed_since(fragmented: Report) -> None:
    assert _shown(fragmented).name == "at the refusal"
    headline, figures, most, who = _shown(fragmented).says
    assert most == "Most is held by model.py:12 in remember(): 80.0 MiB in 4 blocks."
    assert headline == (
        "Refused: 500 MiB, asked for at train.py:31 in step(): 1.09 GiB are free, in 8 pieces that "
        "serve at most 140 MiB, and 212 MiB more on the device: enough, but fragmented. 288 MiB "
        "less would have been served."
    )
    assert figures == (
        "GPU 0 has 212 MiB free. PyTorch holds 1.17 GiB: 80.0 MiB in use by 4 tensors, and 1.09 "
        "GiB free, which serve at most 140 MiB."
    )
    assert who == (
        "All 1.09 GiB in pieces lie beside 4 blocks of model.py:12 in remember(), 80.0 MiB in all, "
        "the first since event 2, 2 ms in."
    )


def test_who_strands_memory_is_ranked(fragmented: Report) -> None:
    (only,) = _shown(fragmented).stranded
    assert (only.owner, only.kept_bytes, only.pieces) == (
        *("model.py:12 in remember()", 8 * 140 * MIB),
        8,
    )
    assert (only.held_bytes, only.blocks, only.since) == (80 * MIB, 4, "event 2, 2 ms in")


def _refused(size: int, left: int, stream: int = 0) -> str:
    """Return the verdict where one piece of 60 MiB and one of 20 MiB were free, of stream 0."""
    scenario = scenarios.Scenario()
    scenario.add("segment_alloc", 100 * MIB, BASE)
    scenario.alloc(BASE, 60 * MIB, "a a.py:1")
    scenario.alloc(BASE + 60 * MIB, 20 * MIB, "b b.py:2")
    scenario.free(BASE)
    scenario.add("oom", size, device_free=left, stream=stream)
    traces = [scenario.snapshot([])]
    seen = report_of(gmlake.load(traces[0]))
    return _shown(seen).says[0].split(": ", 2)[2]


@pytest.mark.parametrize(
    ("size", "left", "stream", "said"),
    [
        (70, 10, 0, "80.0 MiB are free, in 2 pieces that serve at most 60.0 MiB, and 10.0 MiB"),
        (95, 10, 0, "20.0 MiB of 110 MiB are live: what is free adds up to 90.0 MiB, 5.00 MiB too"),
        (40, 50, 0, "50.0 MiB are free on the device, so a limit of the program's refused it."),
        (
            70,
            75,
            0,
            "75.0 MiB are free on the device, so a limit of the program's refused it. 10.0",
        ),
        (50, 10, 0, "60.0 MiB are free, and would have served it: why they did not is not "),
        (50, 10, 7, "80.0 MiB are free of other streams, where they cannot serve it now. 40.0 MiB"),
        (95, 10, 7, "20.0 MiB of 110 MiB are live: what is free adds up to 10.0 MiB, 85.0 MiB too"),
    ],
)
def test_why_it_did_not_fit(size: int, left: int, stream: int, said: str) -> None:
    assert _refused(size * MIB, left * MIB, stream).startswith(said)


@pytest.mark.parametrize(
    ("pool", "stranded", "said"),
    [
        ((0, 0), 80, "100 MiB are free in graph pool (4, 0), which serve nothing else. 90.0 MiB "),
        ((4, 0), 100, "80.0 MiB are free outside of the private pool that must serve it, where "),
    ],
)
def test_what_cannot_serve_is_named_and_strands_nothing(
    pool: tuple[int, int], stranded: int, said: str
) -> None:
    inside = BASE + 512 * MIB
    refused = {"action": "oom", "size": 170 * MIB, "device_free": 60 * MIB, "stream": 0}
    events = [
        event("segment_alloc", BASE, 100 * MIB),
        event("segment_alloc", inside, 120 * MIB, pool_id=(4, 0)),
        alloc(BASE + 80 * MIB, 20 * MIB),
        alloc(inside, 20 * MIB, pool_id=(4, 0)),
        {**refused, "pool_id": pool},
    ]
    moment = _shown(report_of(gmlake.load(snapshot(events))))
    assert said in moment.says[0]
    (only,) = moment.stranded
    assert only.kept_bytes == stranded * MIB


# ---- a peak without a refusal


def test_without_a_refusal_it_is_the_peak(tmp_path: Path) -> None:
    report = load(tmp_path, scenarios.peaked()).report()
    assert _shown(report).name == "at the peak"
    assert _shown(report).says[0] == (
        "The peak, at event 186 of 195, 185 ms in, between the ends of steps 0 and 1: 400 MiB came "
        "last, asked for at train.py:31 in step(). Live then 500 MiB, held 600 MiB, free in pieces "
        "100 MiB, largest piece 100 MiB."
    )
    assert figure(report, Blocks).total_bytes == 500 * MIB


def test_steps_are_marked_by_event_and_time(tmp_path: Path) -> None:
    timeline = figure(load(tmp_path, scenarios.peaked()).report(), Timeline)
    assert [mark.label for mark in timeline.marks] == [f"ProfilerStep#{n}" for n in range(4)]
    assert timeline.marks[0].at == 183
    assert timeline.marks[0].seconds == pytest.approx(0.182)
    assert timeline.unit == "events"
    assert timeline.seconds is not None
    assert timeline.seconds[-1] == pytest.approx(0.191)


# ---- something that grows


def test_what_grows_is_counted_at_every_moment(tmp_path: Path) -> None:
    report = load(tmp_path, scenarios.leaking()).report()
    (row,) = figure(report, Blocks).rows
    assert (row.count, row.site, row.one_bytes) == (12, "train.py:40 in step()", 15 * MIB)
    assert [count for _, count in row.counts] == list(range(13))
    (owner,) = _shown(report).stranded
    assert (owner.kept_bytes, owner.blocks) == (60 * MIB, 12)
    assert figure(report, Timeline).live.keys() == {"train.py:40 in step()"}


@pytest.mark.parametrize(
    "scenario", [scenarios.fragmented, scenarios.peaked, scenarios.leaking, scenarios.expandable]
)
def test_no_block_is_drawn_above_what_was_held(
    scenario: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    report = load(tmp_path, scenario()).report()
    reserved = figure(report, Timeline).reserved
    assert reserved is not None
    assert _topped(report) <= figure(report, Packing).height_bytes == reserved.max()


@pytest.mark.parametrize("policy", gmlake.policies())
@pytest.mark.parametrize("seed", range(2))
def test_blocks_of_a_lake_lie_in_what_it_held(policy: str, seed: int) -> None:
    with busy_lake(policy, seed=seed) as lake:
        seen = lake.snapshot()
        peak = lake.stats()["peak_reserved_bytes"]
    report = seen.report()
    assert _topped(report) <= figure(report, Packing).height_bytes <= peak
    for moment in range(len(figure(report, Moments).moments)):
        inside = _pieces(report, moment, "used") + _pieces(report, moment, "free")
        inside.sort(key=lambda piece: piece.address)
        ends = [piece.address + piece.size_bytes for piece in inside]
        assert all(p.address >= end for p, end in zip(inside[1:], ends, strict=False))


def test_a_walk_over_the_events_finds_the_same_free_bytes() -> None:
    with busy_lake("caching", seed=3) as lake:
        one = lake.snapshot()[0]
    report = gmlake.Snapshot((one,)).report()
    for number, moment in enumerate(figure(report, Moments).moments):
        segments, live = _walked(one, moment.at)
        held = {(p.address, p.size_bytes) for p in _pieces(report, number, "held")}
        assert held == set(segments.items())
        used = _pieces(report, number, "used")
        assert {p.address for p in used} == live
        assert moment.live_bytes == sum(p.size_bytes for p in used)


def _walked(seen: Any, until: int) -> tuple[dict[int, int], set[int]]:
    """Return the segments and the addresses of blocks, going back from the end."""
    spans = seen.spans[["address", "size_bytes"]].tolist()
    segments, live = dict(spans), set(seen.blocks["address"].tolist())
    for past in seen.events[until + 1 :][::-1]:
        address, kind = int(past["address"]), gmlake.trace.Kind(int(past["kind"])).name
        if kind == "SEGMENT_ALLOC":
            del segments[address]
        elif kind == "SEGMENT_FREE":
            segments[address] = int(past["size_bytes"])
        elif kind == "ALLOC":
            live.remove(address)
        elif kind == "FREE":
            live.add(address)
    return segments, live
