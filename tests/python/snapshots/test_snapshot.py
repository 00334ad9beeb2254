"""From PyTorch snapshots to traces: the starting state, ids, pools, streams, old formats."""

from __future__ import annotations

import gmlake
from gmlake.snapshots.files import to_plain
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace import Kind
from recording import BASE, MIB, alloc, block, event, segment, snapshot


def test_start_segments_undo_every_segment_event() -> None:
    events = [
        event("segment_free", BASE + 64 * MIB, 20 * MIB, stream=3),
        event("segment_free", BASE + 32 * MIB, 2 * MIB),
        event("segment_alloc", BASE, 20 * MIB),
        alloc(BASE, 2 * MIB),
        event("segment_alloc", BASE + 64 * MIB, 20 * MIB),
    ]
    segments = [
        segment(BASE, 20 * MIB, [block(BASE, 2 * MIB, 2 * MIB), block(BASE + 2 * MIB, 18 * MIB)]),
        segment(BASE + 64 * MIB, 20 * MIB, [block(BASE + 64 * MIB, 20 * MIB)]),
        segment(BASE + 96 * MIB, 20 * MIB, [block(BASE + 96 * MIB, 20 * MIB)]),
    ]
    trace = gmlake.load(snapshot(events, segments)).devices[0].trace
    assert [s[:3] for s in trace.start_segments.tolist()] == [
        (BASE + 32 * MIB, 2 * MIB, 0),
        (BASE + 64 * MIB, 20 * MIB, 3),
        (BASE + 96 * MIB, 20 * MIB, 0),
    ]
    assert trace.start_segments["is_small"].tolist() == [True, False, False]
    kinds = trace.requests_with_trims()["kind"].tolist()
    assert kinds == [Kind.TRIM, 5, 5, 4, 1, 4], "one TRIM before a run of SEGMENT_FREE"


def test_pools_streams_and_negative_handles_are_kept() -> None:
    one = segment(BASE, 2 * MIB, [block(BASE, 2 * MIB)], segment_pool_id=(0, 3), stream=-2)
    trace = gmlake.load(snapshot([alloc(BASE, 1, stream=-2)], [one])).devices[0].trace
    assert trace.spans[["pool_owner", "pool_number"]].tolist() == [(0, 3)]
    assert trace.requests["stream"].tolist() == [2**64 - 2]
    written = to_plain(of_one_trace(trace))
    assert written["segments"][0]["segment_pool_id"] == (0, 3)
    assert written["device_traces"][0][0]["stream"] == -2
