"""validate: settings of PyTorch that a recording tells, private pools, and where no notes are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake import Notes, Trace, TraceError, ValidationResult
from gmlake.trace import Kind
from recording import (
    BASE,
    FAR,
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

UNSEEN = 7
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1000).map(lambda choice: choice + (choice % 10 == UNSEEN)),
        st.integers(1, 2 * MIB) | st.integers(1, 80 * MIB),
    ),
    max_size=60,
)
"""Programs for note_program in which nothing empties the cache unseen."""


def validate(trace: Trace, notes: Notes | None = None) -> ValidationResult:
    (result,) = gmlake.validate(trace, notes).results
    return result


# ---- expandable segments without notes


@given(STEPS)
def test_several_streams_of_expandable_segments_need_no_notes(steps: list[tuple[int, int]]) -> None:
    trace, _ = note_program(steps, "expandable", 1 << 40)
    trace.is_expandable = True
    result = validate(trace)
    assert result.is_complete, result.differences


def test_two_streams_and_pools_of_expandable_segments() -> None:
    pools = [(0, 30 * MIB), (2, 30 * MIB), (0, 512), (2, 512)]
    trace, _ = note_program(pools, "expandable", 1 << 40)
    result = validate(trace)
    assert (result.allocations, result.addresses_matched) == (4, 4)
    assert result.peak_reserved_bytes == result.recorded_peak_bytes == (2 * 40 + 2 * 2) * MIB
    assert result.is_complete, result.differences


def test_what_only_the_policy_refuses_never_matches() -> None:
    steps = [(0, 30 * MIB), (0, 15 * MIB), (2, 30 * MIB), (2, 15 * MIB)]
    trace, notes = note_program(steps, "expandable", 1 << 40)
    for capacity, served in ((10 * MIB, 0), (20 * MIB, 1), (60 * MIB, 2)):
        result = validate(trace, replace(notes, readings=(), capacity_bytes=capacity))
        assert (result.allocations, result.addresses_matched) == (4, served)
        assert " bytes refused, at 0x" in result.differences[0]
        assert not result.is_complete


@pytest.mark.parametrize("address", [512, 2**64 - 4 * MIB])
def test_addresses_that_no_reservation_has(address: int) -> None:
    events = [
        event("segment_map", FAR, 20 * MIB),
        alloc(FAR, 2 * MIB),
        alloc(address, 2 * MIB),
    ]
    trace = Trace.from_snapshot(snapshot(events, [segment(FAR, 20 * MIB, [], is_expandable=True)]))
    result = validate(trace)
    assert (result.allocations, result.addresses_matched) == (2, 1)
    assert not result.is_complete


def test_more_than_the_simulated_device_has_addresses_for() -> None:
    size = 1 << 47
    events = [event("segment_map", FAR, size), alloc(FAR, 2 * MIB)]
    trace = Trace.from_snapshot(snapshot(events, [segment(FAR, size, [], is_expandable=True)]))
    with pytest.raises(TraceError, match="leave the simulated device no addresses"):
        gmlake.validate(trace)


# ---- private pools


def with_pool(snapshot: dict[str, Any], pool: list[dict[str, Any]]) -> dict[str, Any]:
    """Add segments at the end that belong to a private pool."""
    private = [{**entry, "segment_pool_id": (0, 1)} for entry in pool]
    return {**snapshot, "segments": sorted([*private, *snapshot["segments"]], key=_address_of)}


def _address_of(entry: dict[str, Any]) -> int:
    return int(entry["address"])


def test_private_pools_are_heaps_of_their_own() -> None:
    with gmlake.Lake("sim", "caching", "1TiB") as lake:
        recorder = Recorder(lake)
        first = recorder.allocate(30 * MIB)
        place, events = first.address, recorder.events
        recorder.free(first)
        recorder.trim()  # as capturing a graph begins; its pool takes over these addresses
        events += [event("segment_alloc", place, 20 * MIB), alloc(place, 5 * MIB)]
        recorder.allocate(3 * MIB)
        events += [event("free_requested", place, 5 * MIB), event("free_completed", place, 5 * MIB)]
        events += [alloc(place, 4 * MIB)]
        recorder.allocate(2 * MIB)
        data = recorder.snapshot()
    blocks = [block(place, 4 * MIB, 4 * MIB), block(place + 4 * MIB, 16 * MIB)]
    trace = Trace.from_snapshot(with_pool(data, [segment(place, 20 * MIB, blocks)]))
    result = validate(trace)
    assert result.is_complete, result.differences
    assert (result.allocations, result.pooled_allocations, result.segments) == (5, 2, 2)
    assert "of the allocations, 2 are in private pools" in str(gmlake.validate(trace))
    noted = validate(trace, Notes((), 1 << 30))
    assert noted.is_complete
    assert "statistics are not compared" in noted.remarks[0]


def test_private_pools_that_were_there_before() -> None:
    held = [block(BASE, 5 * MIB, 5 * MIB), block(BASE + 5 * MIB, 15 * MIB)]
    public = BASE + 64 * MIB
    events = [
        event("free_requested", BASE + 5 * MIB, 2 * MIB),
        event("free_completed", BASE + 5 * MIB, 2 * MIB),
        event("segment_alloc", public, 2 * MIB),
        alloc(public, 512),
    ]
    small = segment(public, 2 * MIB, [block(public, 512, 512), block(public + 512, 2 * MIB - 512)])
    data = with_pool(snapshot(events, [small]), [segment(BASE, 20 * MIB, held)])
    result = validate(Trace.from_snapshot(data))
    assert result.is_complete, result.differences
    assert (result.allocations, result.pooled_allocations, result.segments) == (1, 0, 2)
    assert result.final_blocks == 4
    assert result.recorded_peak_bytes == 22 * MIB


def test_private_pools_of_expandable_segments() -> None:
    far = FAR + (1 << 42)
    events = [
        event("segment_map", FAR, 20 * MIB),
        alloc(FAR, 2 * MIB),
        event("segment_map", far, 20 * MIB),
        alloc(far, 15 * MIB),
        event("segment_map", far + 20 * MIB, 20 * MIB),
        alloc(far + 15 * MIB, 15 * MIB),
        alloc(FAR + 2 * MIB, 3 * MIB),
    ]
    public = segment(FAR, 20 * MIB, [], is_expandable=True)
    private = segment(far, 40 * MIB, [], is_expandable=True)
    result = validate(Trace.from_snapshot(with_pool(snapshot(events, [public]), [private])))
    assert result.is_complete, result.differences
    assert (result.allocations, result.pooled_allocations) == (4, 2)


def test_a_pool_that_takes_the_memory_of_others_is_noticed() -> None:
    """The two requests are placed as one heap would."""
    events = [
        event("segment_alloc", BASE, 20 * MIB),
        alloc(BASE, 2 * MIB, pool_id=(0, 0)),
        alloc(BASE + 2 * MIB, 2 * MIB, pool_id=(1, 0)),
    ]
    blocks = [block(BASE, 2 * MIB, 2 * MIB), block(BASE + 2 * MIB, 2 * MIB, 2 * MIB)]
    blocks.append(block(BASE + 4 * MIB, 16 * MIB))
    result = validate(Trace.from_snapshot(snapshot(events, [segment(BASE, 20 * MIB, blocks)])))
    assert (result.addresses_matched, result.allocations) == (1, 2)


def test_the_pool_of_a_segment_is_compared() -> None:
    events = [event("segment_alloc", BASE, 20 * MIB), alloc(BASE, 2 * MIB, pool_id=(1, 0))]
    blocks = [block(BASE, 2 * MIB, 2 * MIB), block(BASE + 2 * MIB, 18 * MIB)]
    for pool, matched in (((1, 0), 1), ((2, 0), 0)):
        part = segment(BASE, 20 * MIB, blocks, segment_pool_id=pool)
        result = validate(Trace.from_snapshot(snapshot(events, [part])))
        assert (result.addresses_matched, result.segments_matched) == (1, matched)


def test_a_pool_gives_back_what_it_holds_at_its_end_only() -> None:
    events = [
        event("segment_alloc", BASE, 20 * MIB, pool_id=(1, 0)),
        alloc(BASE, 2 * MIB, pool_id=(1, 0)),
        free(BASE, 2 * MIB, pool_id=(1, 0)),
        event("segment_alloc", BASE + 32 * MIB, 20 * MIB, pool_id=(0, 0)),
        alloc(BASE + 32 * MIB, 2 * MIB, pool_id=(0, 0)),
        free(BASE + 32 * MIB, 2 * MIB, pool_id=(0, 0)),
        event("segment_free", BASE + 32 * MIB, 20 * MIB, pool_id=(0, 0)),
        alloc(BASE, 3 * MIB, pool_id=(1, 0)),  # idle memory of a pool in use is not given back
        free(BASE, 3 * MIB, pool_id=(1, 0)),
        event("segment_free", BASE, 20 * MIB, pool_id=(1, 0)),
        event("segment_alloc", BASE + 64 * MIB, 20 * MIB, pool_id=(0, 0)),
        alloc(BASE + 64 * MIB, 2 * MIB, pool_id=(0, 0)),
    ]
    at = BASE + 64 * MIB
    left = segment(at, 20 * MIB, [block(at, 2 * MIB, 2 * MIB), block(at + 2 * MIB, 18 * MIB)])
    result = validate(Trace.from_snapshot(snapshot(events, [left])))
    assert result.is_complete, result.differences
    assert (result.pooled_allocations, result.peak_reserved_bytes) == (2, 40 * MIB)


# ---- settings


def test_oversize_blocks_that_went_for_a_request() -> None:
    """With a max_split_size PyTorch gives these back first, and the rest only if it must."""
    steps = [(0, 100 * MIB), (0, 20 * MIB), (1, 1), (1, 1), (0, 60 * MIB), (0, 15 * MIB)]
    trace, notes = note_program(steps, "caching", 170 * MIB, max_split_size=30 * MIB)
    assert np.count_nonzero(trace.requests["kind"] == Kind.SEGMENT_FREE) == 1
    assert not validate(trace).is_complete
    trace.settings = {"max_split_size": 30 * MIB}
    assert validate(trace).is_complete
    assert validate(trace, notes).is_complete


@given(STEPS, st.booleans())
def test_max_split_size_matches_entirely(
    steps: list[tuple[int, int]],
    noted: bool,  # noqa: FBT001 (drawn by hypothesis)
) -> None:
    trace, notes = note_program(steps, "caching", max_split_size=30 * MIB)
    trace.settings = {"max_split_size": 30 * MIB}
    result = validate(trace, notes if noted else None)
    assert result.is_complete, result.differences


LARGE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True, large_segment_size_mb : 40"}


@given(STEPS)
def test_large_segment_size_matches_entirely(steps: list[tuple[int, int]]) -> None:
    for policy, capacity in (("caching", 200 * MIB), ("expandable", 1 << 40)):
        trace, notes = note_program(steps, policy, capacity, large_segment_size=40 * MIB)
        trace.is_expandable = policy == "expandable"
        trace.settings = LARGE
        for result in (validate(trace), validate(trace, notes)):
            assert result.is_complete, result.differences


@pytest.mark.parametrize("policy", ["caching", "expandable"])
def test_large_segment_size_is_read(policy: str) -> None:
    trace, _ = note_program([(0, 9 * MIB)], policy, 1 << 40, large_segment_size=40 * MIB)
    assert not validate(trace).is_complete
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        trace.settings = {name: "max_split_size_mb:99,large_segment_size_mb:40"}
        assert validate(trace).is_complete


def test_max_non_split_rounding_is_read() -> None:
    steps = [(0, 70 * MIB), (1, 1), (0, 40 * MIB)]
    knobs = {"max_split_size": 30 * MIB, "max_non_split_rounding": 32 * MIB}
    trace, _ = note_program(steps, "caching", 1 << 40, **knobs)
    trace.settings = {"max_split_size": 30 * MIB}
    assert not validate(trace).is_complete
    trace.settings["PYTORCH_CUDA_ALLOC_CONF"] = "max_non_split_rounding_mb:32"
    assert validate(trace).is_complete


@given(STEPS, st.booleans())
def test_garbage_collection_matches_entirely(
    steps: list[tuple[int, int]],
    splits: bool,  # noqa: FBT001 (drawn by hypothesis)
) -> None:
    limits = {"max_split_size": 30 * MIB} if splits else {}
    knobs = {"memory_limit": 200 * MIB, "garbage_collection_percent": 50} | limits
    trace, notes = note_program(steps, "caching", 1 << 30, **knobs)
    trace.settings = {"garbage_collection_threshold": 0.5, **limits}
    result = validate(trace, notes)
    assert result.is_complete, result.differences
    assert not result.remarks


def test_garbage_collection_that_cannot_be_followed_is_said() -> None:
    steps = [(0, 70 * MIB), (1, 1), (0, 100 * MIB)]
    knobs = {"memory_limit": 200 * MIB, "garbage_collection_percent": 25}
    trace, notes = note_program(steps, "caching", 1 << 30, **knobs)
    assert Kind.SEGMENT_FREE in trace.requests["kind"]
    trace.settings = {"garbage_collection_threshold": 0.25}
    assert not validate(trace, notes).remarks
    assert "without notes that tell the memory limit" in validate(trace).remarks[0]
    assert "garbage_collection_threshold is 0.25, which is not" in str(gmlake.validate(trace))
    small = replace(notes, capacity_bytes=180 * MIB)
    assert "where the memory limit exceeds the device" in validate(trace, small).remarks[0]
    trace.settings = {"garbage_collection_threshold": 0.255}
    assert "at fractions of a percent" in validate(trace, notes).remarks[0]
    assert not validate(trace, replace(notes, limit_bytes=None)).remarks
