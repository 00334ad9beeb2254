"""validate: policies against recordings of PyTorch, and against recordings made here."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake import Notes, Reading, Trace, TraceError
from gmlake.trace import Kind
from recording import (
    BASE,
    MIB,
    Recorder,
    alloc,
    block,
    event,
    free,
    note_program,
    segment,
    snapshot,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake import ValidationResult


def validate(trace: Trace, notes: Notes | None = None) -> ValidationResult:
    (result,) = gmlake.validate(trace, notes).results
    assert bool(result.differences) <= (not result.is_complete)
    return result


def test_a_path_is_validated_as_its_trace(recorded_trace: Path) -> None:
    by_path = gmlake.validate(str(recorded_trace)).results
    assert by_path == gmlake.validate(gmlake.load_trace(recorded_trace)).results


def test_caching_places_as_pytorch_did(recorded_trace: Path) -> None:
    trace = gmlake.load_trace(recorded_trace)
    result = validate(trace)
    assert result.allocations == trace.allocations > 0
    assert result.is_complete
    assert list(asdict(result)) == [
        "trace",
        "policy",
        "allocations",
        "addresses_matched",
        "segments",
        "segments_matched",
        "final_blocks",
        "final_blocks_matched",
        "statistics",
        "statistics_matched",
        "reserved_events",
        "reserved_matched",
        "peak_reserved_bytes",
        "recorded_peak_bytes",
        "pooled_allocations",
        "remarks",
        "differences",
    ]
    assert result.policy == "caching"
    assert result.peak_reserved_bytes > 0


def test_a_recording_that_was_tampered_with_is_noticed(recorded_trace: Path) -> None:
    trace = gmlake.load_trace(recorded_trace)
    allocs = np.flatnonzero(trace.requests["kind"] == Kind.ALLOC)
    trace.requests["address"][allocs[len(allocs) // 2]] += 512
    trace.final_blocks["block_bytes"][0] += 512
    trace.final_segments["size_bytes"][0] += 512
    result = validate(trace)
    assert result.addresses_matched == result.allocations - 1
    assert len(result.differences) == 1
    assert not result.is_complete
    assert result.final_blocks_matched == result.final_blocks - 1
    assert result.segments_matched == result.segments - 1


def act(recorder: Recorder, live: list[gmlake.Block], choice: int, size: int) -> None:
    """One step of a random program, told by a number."""
    if choice % 10 == 9:
        recorder.trim()
    elif live and choice % 2:
        recorder.free(live.pop(choice // 2 % len(live)))
    else:
        live.append(recorder.allocate(size, stream=choice // 2 % 3))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.integers(1, 2 * MIB) | st.integers(1, 40 * MIB) | st.sampled_from([MIB, MIB + 1]),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_recording_from_the_beginning_matches_entirely(steps: list[tuple[int, int]]) -> None:
    with gmlake.Lake("sim", "caching", "1TiB") as lake:
        recorder = Recorder(lake)
        live: list[gmlake.Block] = []
        for choice, size in steps:
            act(recorder, live, choice, size)
        trace = Trace.from_snapshot(recorder.snapshot())
    assert len(trace.start_blocks) == len(trace.start_segments) == 0
    assert validate(trace).is_complete


@given(STEPS, st.integers(0, 30), st.booleans())
def test_a_recording_from_the_middle_matches_entirely(
    steps: list[tuple[int, int]],
    start: int,
    small: bool,  # noqa: FBT001 (drawn by hypothesis)
) -> None:
    # Sizes that leave no slack: small ones, or multiples of 2 MiB from 2 MiB on.
    with gmlake.Lake("sim", "caching", "1TiB") as lake:
        recorder = Recorder(lake)
        live: list[gmlake.Block] = []
        for number, (choice, size) in enumerate(steps):
            if number == start:
                recorder.events.clear()
            fitting = size % MIB + 1 if small else (size // (2 * MIB) + 1) * 2 * MIB
            act(recorder, live, choice, fitting)
        if start >= len(steps):
            recorder.events.clear()
        trace = Trace.from_snapshot(recorder.snapshot())
    assert validate(trace).is_complete


def test_slack_that_the_events_betray_is_found() -> None:
    with gmlake.Lake("sim", "caching", "1TiB") as lake:
        recorder = Recorder(lake)
        first = recorder.allocate(8 * MIB)
        second = recorder.allocate(8 * MIB)
        recorder.free(first)
        first = recorder.allocate(7 * MIB + MIB // 2)
        assert first.size == 8 * MIB, "half a MiB cannot be split off in the large pool"
        recorder.events.clear()
        third = recorder.allocate(2 * MIB)
        recorder.free(first)
        recorder.allocate(7 * MIB + MIB // 4)
        for served in (second, third):
            recorder.free(served)
        recorder.allocate(12 * MIB)
        trace = Trace.from_snapshot(recorder.snapshot())
    assert 8 * MIB in trace.start_blocks["block_bytes"].tolist()
    assert validate(trace).is_complete


def test_recorded_settings_apply() -> None:
    with gmlake.Lake("sim", "caching", "1TiB", max_split_size="30MiB") as lake:
        recorder = Recorder(lake)
        recorder.free(recorder.allocate(64 * MIB))
        recorder.allocate(12 * MIB)
        recorder.allocate(40 * MIB)
        data = recorder.snapshot()
    assert not validate(Trace.from_snapshot(data)).is_complete
    data["allocator_settings"] = {"max_split_size": 30 * MIB}
    assert validate(Trace.from_snapshot(data)).is_complete


def test_expandable_recordings_from_the_middle_are_not_compared() -> None:
    final = segment(BASE, 20 * MIB, [block(BASE, 512, 1)], is_expandable=True)
    for trace in (
        Trace.from_snapshot(snapshot([alloc(BASE + 512, 1)], [final])),
        Trace.from_snapshot(snapshot([free(BASE, 512), event("segment_map", BASE, 20 * MIB)])),
    ):
        with pytest.raises(TraceError, match="expandable segments, and not from the first"):
            gmlake.validate(trace)


def test_traces_without_addresses_are_not_compared(shipped_trace: Trace) -> None:
    with pytest.raises(TraceError, match="no recorded addresses"):
        gmlake.validate(shipped_trace)


def test_a_free_outside_every_segment() -> None:
    one = segment(BASE, 2 * MIB, [])
    trace = Trace.from_snapshot(snapshot([free(BASE + 4 * MIB, 512)], [one]))
    assert gmlake.replay(trace, "stitch").results[0].allocations == 1
    with pytest.raises(TraceError, match="lies in no segment"):
        gmlake.validate(trace)
    with pytest.raises(TraceError, match="lies in no segment"):
        gmlake.validate(Trace.from_snapshot(snapshot([free(BASE, 512)])))


def test_nothing_recorded_matches_nothing() -> None:
    result = validate(Trace.from_snapshot({"segments": [], "device_traces": []}))
    assert (result.allocations, result.segments, result.final_blocks) == (0, 0, 0)


def test_validation_survives_gmlakes_own_format(recorded_trace: Path, tmp_path: Path) -> None:
    trace = gmlake.load_trace(recorded_trace)
    trace.save(tmp_path / "x.gmtrace")
    assert validate(gmlake.load_trace(tmp_path / "x.gmtrace")).is_complete
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(trace.to_snapshot(), 4))
    assert validate(gmlake.load_trace(tmp_path / "x.pickle")).is_complete


# ---- statistics and refusals, as notes tell them


@given(STEPS)
def test_statistics_and_refusals_match_entirely(steps: list[tuple[int, int]]) -> None:
    trace, notes = note_program(steps, "caching")
    result = validate(trace, notes)
    assert result.statistics == sum(len(reading.stats) for reading in notes.readings) > 0
    assert result.is_complete, result.differences


def test_refusals_are_asked_for_again() -> None:
    steps = [(0, 40 * MIB)] * 5 + [(3, 1), (5, 1), (8, 1), (0, 40 * MIB)]
    trace, notes = note_program(steps, "caching")
    assert Kind.OOM in trace.requests["kind"]
    assert notes.readings[-1].stats["num_ooms"] == 1
    assert validate(trace, notes).is_complete
    roomy = validate(trace, replace(notes, capacity_bytes=1 << 40))
    assert roomy.addresses_matched == roomy.allocations - 1, "what PyTorch refused was served"
    assert not roomy.is_complete
    assert validate(trace).is_complete, "without notes nothing is refused and nothing compared"


def test_a_wrong_statistic_is_noticed() -> None:
    trace, notes = note_program([(0, MIB), (0, 3 * MIB), (1, 1)], "caching")
    (reading,) = notes.readings
    wrong = {**reading.stats, "active.all.peak": 77, "num_of_the_future": 1}
    result = validate(trace, replace(notes, readings=(replace(reading, stats=wrong, label="x"),)))
    assert result.statistics - result.statistics_matched == 2
    assert result.differences == (
        "x, after 6 events: active.all.peak is 2, PyTorch's 77",
        "x, after 6 events: num_of_the_future is not counted, PyTorch's 1",
    )


def test_what_the_program_let_go_counts_as_active() -> None:
    size = 3 * MIB
    trace = Trace.from_snapshot(
        snapshot(
            [
                event("segment_alloc", BASE, 20 * MIB),
                alloc(BASE, size),
                event("free_requested", BASE, size),
                alloc(BASE + size, MIB + 1),
                event("free_completed", BASE, size),
            ],
            [segment(BASE, 20 * MIB, [])],
        )
    )
    rounded = MIB + 512
    expected = [
        (2, size, size),
        (3, 0, size),
        (4, rounded, size + rounded),
        (5, rounded, rounded),
    ]
    readings = tuple(
        Reading(
            events,
            {
                "allocated_bytes.all.current": allocated,
                "allocated_bytes.all.peak": size,
                "active_bytes.large_pool.current": active,
                "allocation.all.freed": int(events > 2),
                "requested_bytes.all.freed": size * int(events > 4),
                "active.all.freed": int(events > 4),
            },
        )
        for events, allocated, active in expected
    )
    result = validate(trace, Notes(readings, 1 << 30))
    assert result.statistics == result.statistics_matched == 24, result.differences


def test_frees_that_wait_are_found_too_late() -> None:
    """PyTorch looks for a free block, runs out of memory, and only then waits for other streams."""
    second = BASE + 64 * MIB
    free_later = [event("free_requested", second, 5 * MIB), free(second, 5 * MIB)]
    events = [
        event("segment_alloc", BASE, 30 * MIB),
        alloc(BASE, 30 * MIB),
        event("segment_alloc", second, 20 * MIB),
        alloc(second, 5 * MIB),
        alloc(second + 5 * MIB, 15 * MIB),
        *free_later,
        {"action": "oom", "size": 4 * MIB, "stream": 0, "device_free": 0},
        alloc(second, 4 * MIB),
    ]
    final = [
        segment(BASE, 30 * MIB, [block(BASE, 30 * MIB, 30 * MIB)]),
        segment(
            second,
            20 * MIB,
            [block(second, 5 * MIB, 4 * MIB), block(second + 5 * MIB, 15 * MIB, 15 * MIB)],
        ),
    ]
    trace = Trace.from_snapshot(snapshot(events, final))
    reading = Reading(9, {"num_ooms": 1, "num_alloc_retries": 1, "num_sync_all_streams": 1})
    result = validate(trace, Notes((reading,), 60 * MIB))
    assert result.allocations == 5
    assert result.is_complete, result.differences


def test_a_reading_parts_a_free_from_the_refusal_behind_it() -> None:
    steps = [(0, 40 * MIB)] * 4 + [(1, 1), (8, 1), (0, 100 * MIB)]
    trace, notes = note_program(steps, "caching")
    assert notes.readings[-1].stats["num_ooms"] == 1
    assert notes.readings[0].stats["active.all.freed"] == 1
    result = validate(trace, notes)
    assert result.is_complete, result.differences


def test_what_a_library_gave_back_unseen() -> None:
    steps = [(0, 40 * MIB), (2, 30 * MIB), (1, 1), (7, 1), (0, 40 * MIB), (7, 1), (9, 1), (7, 1)]
    trace, notes = note_program(steps, "caching")
    assert notes.readings[-1].stats["num_sync_all_streams"] == 4
    assert validate(trace, notes).is_complete


# ---- expandable segments


@given(STEPS)
def test_reserved_bytes_of_expandable_segments_match_entirely(
    steps: list[tuple[int, int]],
) -> None:
    trace, notes = note_program(steps, "expandable")
    trace.is_expandable = True
    result = validate(trace, notes)
    assert result.policy == "expandable"
    assert result.is_complete, result.differences
    assert result.reserved_events >= trace.allocations


def test_a_granule_too_many_is_noticed() -> None:
    trace, notes = note_program([(0, 30 * MIB), (0, 15 * MIB), (3, 1)], "expandable")
    assert validate(trace).is_complete
    grown = np.flatnonzero(trace.requests["kind"] == Kind.SEGMENT_ALLOC)
    trace.requests["size_bytes"][grown[0]] += 20 * MIB
    result = validate(trace, notes)
    assert result.reserved_matched == 0 < result.reserved_events
    assert result.recorded_peak_bytes == result.peak_reserved_bytes + 20 * MIB
    assert "bytes reserved, PyTorch's" in result.differences[0]


GRANULES = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), max_size=30)


@given(st.sets(st.integers(0, 9)), GRANULES)
def test_what_expandable_segments_held_at_the_start(
    before: set[int], changes: list[tuple[int, int]]
) -> None:
    """Any run of granules comes or goes; undone from the end, that gives what was held first."""
    held, events = set(before), []
    for first, count in changes:
        run = set(range(first, first + count))
        if not run & held:
            events.append(event("segment_map", BASE + first * 2 * MIB, count * 2 * MIB))
            held |= run
        elif run <= held:
            events.append(event("segment_unmap", BASE + first * 2 * MIB, count * 2 * MIB))
            held -= run
    final = [
        segment(BASE + first * 2 * MIB, count * 2 * MIB, [], is_expandable=True)
        for first, count in runs_of(held)
    ]
    trace = Trace.from_snapshot(snapshot(events, final))
    found = {
        (int(row["address"]) - BASE) // (2 * MIB) + place
        for row in trace.start_segments
        for place in range(int(row["size_bytes"]) // (2 * MIB))
    }
    assert found == (before if events else held)
    assert int(trace.start_segments["size_bytes"].sum()) == len(found) * 2 * MIB


def runs_of(numbers: set[int]) -> list[tuple[int, int]]:
    """Return (first, count) of each run of neighbours."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and sum(runs[-1]) == number:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs


def test_a_block_at_another_distance_is_noticed() -> None:
    trace, notes = note_program([(0, 30 * MIB), (0, 15 * MIB), (0, 5 * MIB)], "expandable")
    assert validate(trace, notes).is_complete
    trace.requests["address"][np.flatnonzero(trace.requests["kind"] == Kind.ALLOC)[1]] += 512
    result = validate(trace, notes)
    assert result.addresses_matched == result.allocations - 1
    assert not result.is_complete


# ---- notes as a file


def test_notes_are_read(tmp_path: Path) -> None:
    mark = {"label": "end", "events": 3, "stats": {"num_ooms": 0}, "is_trim": True}
    first = {"label": "begin", "events": 0, "stats": {}, "is_trim": False, "free_bytes": 1 << 30}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"limit_bytes": None, "marks": [first, mark]}))
    readings = (
        Reading(0, {}, is_trim=False, label="begin"),
        Reading(3, {"num_ooms": 0}, is_trim=True, label="end"),
    )
    assert gmlake.load_notes(path) == Notes(readings, 1 << 30)
    path.write_text(json.dumps({"limit_bytes": 5, "marks": [first]}))
    assert gmlake.load_notes(path) == Notes(readings[:1], 1 << 30, limit_bytes=5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"limit_bytes": null, "marks": []}',
        '{"limit_bytes": -1, "marks": []}',
        '{"limit_bytes": 1, "marks": [1]}',
        '{"limit_bytes": 1, "marks": [{"events": -1, "stats": {}, "is_trim": 0, "label": ""}]}',
        '{"limit_bytes": 1, "marks": [{"events": "x", "stats": {}, "is_trim": 0, "label": ""}]}',
        '{"limit_bytes": Infinity, "marks": [{"free_bytes": 1}]}',
        '{"limit_bytes": "\\u001b[31m\\n", "marks": []}',
        "[" * 100_000,
    ],
)
def test_what_are_no_notes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="not notes about a recording") as caught:
        gmlake.load_notes(path)
    assert str(caught.value).isprintable()
    assert "Error" not in str(caught.value)


def test_notes_that_nobody_writes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(TraceError, match="not a regular file"):
        gmlake.load_notes(tmp_path / "x.json")
