"""validate: `caching` against recordings of PyTorch, and against recordings made here."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake import Trace, TraceError
from gmlake.trace import Kind
from recording import BASE, MIB, Recorder, alloc, event, free, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from gmlake import ValidationResult


def validate(trace: Trace) -> ValidationResult:
    (result,) = gmlake.validate(trace).results
    return result


def is_complete(result: ValidationResult) -> bool:
    return (
        result.addresses_matched == result.allocations
        and result.segments_matched == result.segments
        and result.final_blocks_matched == result.final_blocks
    )


def test_caching_places_as_pytorch_did(shared_trace: Path) -> None:
    trace = gmlake.load_trace(shared_trace)
    result = validate(trace)
    assert result.allocations == trace.allocations > 0
    assert is_complete(result)
    assert list(asdict(result)) == [
        "trace",
        "allocations",
        "addresses_matched",
        "segments",
        "segments_matched",
        "final_blocks",
        "final_blocks_matched",
    ]


def test_a_recording_that_was_tampered_with_is_noticed(shared_trace: Path) -> None:
    trace = gmlake.load_trace(shared_trace)
    allocs = np.flatnonzero(trace.requests["kind"] == Kind.ALLOC)
    trace.requests["address"][allocs[len(allocs) // 2]] += 512
    trace.final_blocks["block_bytes"][0] += 512
    trace.final_segments["size_bytes"][0] += 512
    result = validate(trace)
    assert result.addresses_matched == result.allocations - 1
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
    assert is_complete(validate(trace))


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
    assert is_complete(validate(trace))


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
    assert is_complete(validate(trace))


def test_recorded_settings_apply() -> None:
    with gmlake.Lake("sim", "caching", "1TiB", max_split_size="30MiB") as lake:
        recorder = Recorder(lake)
        recorder.free(recorder.allocate(64 * MIB))
        recorder.allocate(12 * MIB)
        recorder.allocate(40 * MIB)
        data = recorder.snapshot()
    assert not is_complete(validate(Trace.from_snapshot(data)))
    data["allocator_settings"] = {"max_split_size": 30 * MIB}
    assert is_complete(validate(Trace.from_snapshot(data)))


def test_expandable_recordings_are_not_compared() -> None:
    trace = Trace.from_snapshot(snapshot([event("segment_map", BASE, 20 * MIB), alloc(BASE, 1)]))
    with pytest.raises(TraceError, match="expandable segments"):
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


def test_validation_survives_gmlakes_own_format(shared_trace: Path, tmp_path: Path) -> None:
    trace = gmlake.load_trace(shared_trace)
    trace.save(tmp_path / "x.gmtrace")
    assert is_complete(validate(gmlake.load_trace(tmp_path / "x.gmtrace")))
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(trace.to_snapshot(), 4))
    assert is_complete(validate(gmlake.load_trace(tmp_path / "x.pickle")))
