"""validate: settings of PyTorch that a recording tells, private pools, and where no notes are."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import gmlake
from recording import (
    BASE,
    FAR,
    MIB,
    alloc,
    block,
    event,
    free,
    note_program,
    segment,
    snapshot,
)
from validating import validate

UNSEEN = 7
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1000).map(lambda choice: choice + (choice % 10 == UNSEEN)),
        st.integers(1, 2 * MIB) | st.integers(1, 80 * MIB),
    ),
    max_size=60,
)
"""Programs for note_program in which nothing empties the cache unseen."""


@pytest.mark.parametrize("address", [512, 2**64 - 4 * MIB])
def test_addresses_that_no_reservation_has(address: int) -> None:
    events = [
        event("segment_map", FAR, 20 * MIB),
        alloc(FAR, 2 * MIB),
        alloc(address, 2 * MIB),
    ]
    trace = (
        gmlake.load(snapshot(events, [segment(FAR, 20 * MIB, [], is_expandable=True)]))
        .devices[0]
        .trace
    )
    result = validate(trace)
    assert (result.allocations, result.addresses_matched) == (2, 1)
    assert not result.is_complete


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
    result = validate(gmlake.load(snapshot(events, [left])).devices[0].trace)
    assert result.is_complete, result.differences
    assert (result.pooled_allocations, result.peak_reserved_bytes) == (2, 40 * MIB)


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
