"""Recordings at the edges of what each rule takes: the first event, the last byte, exactly full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gmlake
import scenarios
from gmlake import Trace
from gmlake.pictures.figures import AddressMap, Moments, Packing
from gmlake.snapshots.figures_of import MOST_POINTS, turning_points
from gmlake.snapshots.model import SpanKind
from gmlake.snapshots.moments import MOST_MOMENTS
from gmlake.trace.layout import LARGEST_SIZE, SMALL_LIMIT, Kind
from recording import BASE, MIB, alloc, block, event, figure, free, load, segment, snapshot
from snapshot_programs import busy_lake

if TYPE_CHECKING:
    from pathlib import Path


def test_segments_and_blocks_may_come_in_any_order() -> None:
    parts = [
        segment(place, 20 * MIB, [block(place, 20 * MIB, 20 * MIB)])
        for place in (BASE + 80 * MIB, BASE, BASE + 40 * MIB)
    ]
    events = [free(BASE + 40 * MIB, 20 * MIB), event("segment_free", BASE + 40 * MIB, 20 * MIB)]
    found = Trace.from_snapshot(snapshot(events, parts[:2]))
    assert found.start_segments["address"].tolist() == [BASE, BASE + 40 * MIB, BASE + 80 * MIB]
    assert found.final_segments["address"].tolist() == [BASE, BASE + 80 * MIB]
    assert found.final_blocks["address"].tolist() == [BASE, BASE + 80 * MIB]
    assert found.start_blocks["address"].tolist() == [BASE, BASE + 40 * MIB, BASE + 80 * MIB]


@pytest.mark.parametrize(
    ("line", "shown"), [((1 << 31) - 1, (1 << 31) - 1), (1 << 31, 0), (-1, 0), (0, 0)]
)
def test_a_line_that_no_file_has_is_none(tmp_path: Path, line: int, shown: int) -> None:
    frames = [{"name": "step", "filename": "train.py", "line": line}]
    (site,) = load(tmp_path, snapshot([alloc(BASE, MIB, frames=frames)])).sites.values()
    assert site.frames == (f"step  train.py:{shown}",)


@pytest.mark.parametrize("rows", [MOST_POINTS, 2 * MOST_POINTS, 2 * MOST_POINTS + 3])
def test_the_highest_and_the_lowest_point_are_drawn(rows: int) -> None:
    values = np.arange(rows) % 1000
    values[rows // 3], values[-2] = 5000, -7
    chosen, stretch = turning_points(values)
    assert {0, rows // 3, rows - 2, rows - 1} <= set(chosen.tolist())
    assert len(chosen) <= MOST_POINTS + 4
    assert stretch == (1 if rows == MOST_POINTS else -(-rows // (MOST_POINTS // 2)))


def test_the_peak_may_be_the_first_event(tmp_path: Path) -> None:
    events = [alloc(BASE, 2 * MIB, time_us=5), free(BASE, 2 * MIB, time_us=9)]
    peak = load(tmp_path, snapshot(events))[0].peak
    assert (peak.row, peak.live_bytes, peak.time_ns) == (0, 2 * MIB, 5000)


@pytest.mark.parametrize(("gap", "slack"), [(SMALL_LIMIT, SMALL_LIMIT), (SMALL_LIMIT + 512, 0)])
def test_a_gap_at_the_end_of_a_large_segment_is_slack_up_to_a_size(gap: int, slack: int) -> None:
    size = 20 * MIB - gap
    events = [free(BASE, size)]
    parts = [segment(BASE, 20 * MIB, [block(BASE, 20 * MIB)])]
    trace = Trace.from_snapshot(snapshot(events, parts))
    assert trace.start_blocks["block_bytes"].tolist() == [size + slack]


def test_a_tensor_of_one_byte_is_there_before_the_history() -> None:
    with gmlake.Lake("sim", capacity="1GiB") as lake:
        lake.allocate(1)
        lake.keep_history(100)
        lake.allocate(700)
        trace = lake.snapshot()[0].trace
    assert trace.start_blocks["requested_bytes"].tolist() == [1]
    assert (trace.requests["pool"] == 0).all()
    assert trace.requests["kind"].tolist().count(Kind.ALLOC) == 1


def test_the_shortest_recording_whose_moments_are_chosen_says_so(tmp_path: Path) -> None:
    half = [alloc(BASE + at * MIB, MIB) for at in range(MOST_MOMENTS // 2)]
    document = snapshot([*half, *(free(one["addr"], MIB) for one in half)])
    found = figure(load(tmp_path, document).report(), Moments)
    assert len(found.moments) == MOST_MOMENTS
    assert found.note.startswith(f"{MOST_MOMENTS} moments of {MOST_MOMENTS} events are prepared")


def test_one_view_that_is_not_drawn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with busy_lake() as lake:
        seen = lake.snapshot()
    count = int((seen[0].spans["kind"] == SpanKind.VIEW).sum())
    monkeypatch.setattr("gmlake.snapshots.maps.MOST_VIEWS", count - 1)
    found = figure(seen.report(), AddressMap)
    assert len(found.views) == count - 1
    assert all(view.label.startswith("view of ") for view in found.views)
    assert "the 1 smallest views are not drawn" in found.note
    monkeypatch.setattr("gmlake.snapshots.maps.MOST_VIEWS", count)
    found = figure(seen.report(), AddressMap)
    assert "views are not drawn" not in found.note


def test_a_small_piece_at_the_beginning_of_a_segment_is_free(tmp_path: Path) -> None:
    """Behind a block of its segment it would be what PyTorch cannot split off."""
    first, second, piece = BASE, BASE + 20 * MIB, MIB // 2
    events = [
        event("segment_alloc", first, 20 * MIB),
        alloc(first, 20 * MIB),
        event("segment_alloc", second, 20 * MIB),
        alloc(second, piece),
        alloc(second + piece, 20 * MIB - piece),
        free(second, piece),
    ]
    parts = [
        segment(first, 20 * MIB, [block(first, 20 * MIB, 20 * MIB)]),
        segment(
            second,
            20 * MIB,
            [block(second, piece), block(second + piece, 20 * MIB - piece, 20 * MIB - piece)],
        ),
    ]
    found = figure(load(tmp_path, snapshot(events, parts)).report(), Moments)
    assert "held 40.0 MiB, free in pieces 512 KiB" in found.moments[-1].says[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": 1 << 64},
        {"stream": -(1 << 63) - 1},
        {"time_us": (1 << 64) // 1000},
        {"time_us": -1},
        {"addr": (1 << 64) - MIB},
        {"size": LARGEST_SIZE + 1},
        {"size": -1},
    ],
)
def test_the_first_number_beyond_each_limit_is_named(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(gmlake.TraceError, match=r"event 1\b") as caught:
        Trace.from_snapshot(snapshot([alloc(BASE, MIB), alloc(BASE + MIB, MIB) | wrong]))
    assert name in str(caught.value) or f"{value:#x}" in str(caught.value)
    fits = {name: value + (1 if value < 0 else -1)}
    Trace.from_snapshot(snapshot([alloc(BASE, MIB), alloc(BASE + MIB, MIB) | fits]))


def test_memory_that_was_gone_at_the_end_is_said_while_it_was_there(tmp_path: Path) -> None:
    gone = BASE + (1 << 40)
    events = [
        alloc(BASE, 4 * MIB),
        alloc(gone, 10 * MIB),
        alloc(BASE + 4 * MIB, 4 * MIB),
        free(gone, 10 * MIB),
    ]
    blocks = [block(BASE + at * MIB, 4 * MIB, 4 * MIB) for at in (0, 4)]
    parts = [segment(BASE, 20 * MIB, [*blocks, block(BASE + 8 * MIB, 12 * MIB)])]
    found = figure(load(tmp_path, snapshot(events, parts)).report(), Moments)
    said = [
        "10.0 MiB of it lay in memory that was gone at the end: its place is not recorded"
        in one.says[0]
        for one in found.moments
    ]
    assert said == [False, False, True, True, False]


def test_what_has_no_address_lies_in_blocks_of_whole_units() -> None:
    trace = Trace.from_snapshot(snapshot([alloc(BASE + at * MIB, 512 + at) for at in range(3)]))
    requests = trace.requests.copy()
    requests["address"] = 0
    written = replace(trace, requests=requests).to_snapshot()["segments"]
    assert [one["total_size"] for one in written] == [512, 1024, 1024]
    assert [one["blocks"][0]["size"] for one in written] == [512, 1024, 1024]
    assert [one["requested_size"] for one in written] == [512, 513, 514]


def test_what_was_mapped_at_once_may_be_unmapped_in_parts(tmp_path: Path) -> None:
    places = [("map", 0, 10), ("map", 10, 30), ("unmap", 20, 10), ("unmap", 30, 10)]
    events = [
        event(f"segment_{what}", BASE + at * MIB, size * MIB, segment_type="large")
        for what, at, size in places
    ]
    events.insert(1, alloc(BASE, 8 * MIB))
    blocks = [block(BASE, 8 * MIB, 8 * MIB), block(BASE + 8 * MIB, 12 * MIB)]
    parts = [segment(BASE, 20 * MIB, blocks, is_expandable=True)]
    found = figure(load(tmp_path, snapshot(events, parts)).report(), Moments)
    held = [re.findall(r", held ([\d.]+) MiB", one.says[0]) for one in found.moments[1:]]
    assert held == [["10.0"], ["10.0"], ["40.0"], ["30.0"], ["20.0"]]


def test_a_part_that_went_without_an_event_was_held_before(tmp_path: Path) -> None:
    events = [
        event("segment_map", BASE + at * MIB, size * MIB)
        for at, size in ((0, 10), (10, 30), (60, 10))
    ]
    parts = [
        segment(
            BASE + at * MIB, size * MIB, [block(BASE + at * MIB, size * MIB)], is_expandable=True
        )
        for at, size in ((0, 10), (20, 20), (60, 10))
    ]
    events.insert(1, alloc(BASE, 8 * MIB))
    events.append(free(BASE, 8 * MIB))
    found = figure(load(tmp_path, snapshot(events, parts)).report(), Moments)
    held = [re.findall(r", held ([\d.]+) MiB", one.says[0]) for one in found.moments[1:]]
    assert held == [["10.0"], ["10.0"], ["40.0"], ["40.0"], ["40.0"]]


def test_a_block_lies_in_the_part_of_its_segment_that_holds_it(tmp_path: Path) -> None:
    """A segment of 40 MiB takes the places of two that went, and its second half has a block."""
    scenario = scenarios.Scenario()
    places = [BASE + number * 64 * MIB for number in range(4)]
    for at in places[:3]:
        scenario.add("segment_alloc", 20 * MIB, at)
        scenario.alloc(at, 20 * MIB, "f f.py:1")
    for at in (places[0], places[2]):
        scenario.free(at)
        scenario.add("segment_free", 20 * MIB, at)
    scenario.add("segment_alloc", 40 * MIB, places[3])
    scenario.alloc(places[3] + 20 * MIB, 20 * MIB, "g f.py:2")
    parts = [
        segment(places[1], 20 * MIB, [block(places[1], 20 * MIB, 20 * MIB)]),
        segment(
            places[3],
            40 * MIB,
            [block(places[3], 20 * MIB), block(places[3] + 20 * MIB, 20 * MIB, 20 * MIB)],
        ),
    ]
    found = figure(load(tmp_path, scenario.snapshot(parts)).report(), Packing)
    assert sorted(found.offset.tolist()) == [0, 20 * MIB, 40 * MIB, 40 * MIB]
    assert found.size.tolist() == [20 * MIB] * 4


def test_annotations_count_against_what_a_file_can_hold(tmp_path: Path) -> None:
    entries = [{"action": "snapshot"}] * 10_000
    data = snapshot(entries)
    data["device_traces"] = [entries, entries]
    load(tmp_path, data)
    data["external_annotations"] = entries
    with pytest.raises(gmlake.TraceError, match="names the same entries over and over"):
        load(tmp_path, data)


def test_without_segments_what_no_block_ever_covered_is_left_out(tmp_path: Path) -> None:
    places = [BASE, BASE + MIB, BASE + 100 * MIB]
    events = [*(alloc(at, MIB) for at in places), free(BASE, MIB), alloc(BASE, MIB)]
    found = figure(load(tmp_path, snapshot(events)).report(), Packing)
    assert sorted(found.offset.tolist()) == [0, 0, MIB, 2 * MIB]


@pytest.mark.parametrize("policy", ["caching", "stitch"])
def test_the_trace_of_a_lake_ends_with_what_it_holds(policy: str) -> None:
    with busy_lake(policy) as lake:
        seen = lake.snapshot()[0]
    held = seen.spans[np.isin(seen.spans["kind"], (SpanKind.BASE, SpanKind.SEGMENT))]
    held = held[np.argsort(held["address"])]
    for name in ("address", "size_bytes", "stream", "is_small"):
        assert np.array_equal(seen.trace.final_segments[name], held[name])
    assert int(seen.trace.final_segments["size_bytes"].sum()) == seen.reserved_bytes > 0
