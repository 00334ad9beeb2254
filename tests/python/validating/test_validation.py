"""validate: policies against recordings of PyTorch, and against recordings made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake import Notes
from gmlake.snapshots.whole import of_one_trace
from recording import (
    BASE,
    MIB,
    Recorder,
    event,
    note_program,
    segment,
    snapshot,
)

if TYPE_CHECKING:
    from gmlake import ValidationResult
    from gmlake.trace import Trace


def validate(trace: Trace, notes: Notes | None = None) -> ValidationResult:
    (result,) = gmlake.validate(of_one_trace(trace), notes).results
    assert bool(result.differences) <= (not result.is_complete)
    return result


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
        trace = gmlake.load(recorder.snapshot()).devices[0].trace
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
        trace = gmlake.load(recorder.snapshot()).devices[0].trace
    assert 8 * MIB in trace.start_blocks["block_bytes"].tolist()
    assert validate(trace).is_complete


def test_recorded_settings_apply() -> None:
    with gmlake.Lake("sim", "caching", "1TiB", max_split_size="30MiB") as lake:
        recorder = Recorder(lake)
        recorder.free(recorder.allocate(64 * MIB))
        recorder.allocate(12 * MIB)
        recorder.allocate(40 * MIB)
        data = recorder.snapshot()
    assert not validate(gmlake.load(data).devices[0].trace).is_complete
    data["allocator_settings"] = {"max_split_size": 30 * MIB}
    assert validate(gmlake.load(data).devices[0].trace).is_complete


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
    trace = gmlake.load(snapshot(events, final)).devices[0].trace
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
