"""validate: policies against recordings of PyTorch, and against recordings made here."""

from __future__ import annotations

from hypothesis import given, strategies as st

import gmlake
from recording import (
    BASE,
    MIB,
    Recorder,
    event,
    note_program,
    segment,
    snapshot,
)
from validating import validate


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
