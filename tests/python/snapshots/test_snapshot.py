"""From PyTorch snapshots to traces: the starting state, ids, pools, streams, old formats."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake import Trace, TraceError
from gmlake.trace import Kind
from recording import BASE, KIB, MIB, alloc, block, event, free, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path


def columns(trace: Trace, *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(trace.requests[name].tolist() for name in names), strict=True))


def test_ids_are_dense_and_the_same_in_alloc_and_free() -> None:
    events = [
        alloc(BASE, 100),
        alloc(BASE + 512, 200),
        free(BASE, 100),
        alloc(BASE, 300),
        free(BASE + 512, 200),
        free(BASE, 300),
    ]
    trace = Trace.from_snapshot(snapshot(events))
    assert columns(trace, "kind", "id", "size_bytes") == [
        (Kind.ALLOC, 0, 100),
        (Kind.ALLOC, 1, 200),
        (Kind.FREE, 0, 100),
        (Kind.ALLOC, 2, 300),
        (Kind.FREE, 1, 200),
        (Kind.FREE, 2, 300),
    ]
    assert trace.id_count == 3
    assert trace.peak_live_bytes == 1024


def test_blocks_live_before_come_first_in_address_order() -> None:
    events = [
        alloc(BASE + 4 * KIB, 1000),
        event("free_requested", BASE + 2 * KIB, 700),
        free(BASE + 2 * KIB, 700),
        free(BASE, 600),
    ]
    blocks = [
        block(BASE, 1024),
        block(BASE + 1 * KIB, 1024, 900),
        block(BASE + 2 * KIB, 2 * KIB),
        block(BASE + 4 * KIB, 1024, 1000),
        block(BASE + 5 * KIB, 2 * MIB - 5 * KIB),
    ]
    trace = Trace.from_snapshot(snapshot(events, [segment(BASE, 2 * MIB, blocks, stream=7)]))
    assert trace.start_blocks["address"].tolist() == [BASE, BASE + KIB, BASE + 2 * KIB]
    assert trace.start_blocks["id"].tolist() == [0, 1, 2]
    assert trace.start_blocks["requested_bytes"].tolist() == [600, 900, 700]
    assert trace.start_blocks["block_bytes"].tolist() == [1024, 1024, 1024]
    assert columns(trace, "kind", "id") == [(1, 3), (3, 2), (2, 2), (2, 0)]
    head = trace.replay_requests()[:3]
    assert head["kind"].tolist() == [Kind.ALLOC] * 3
    assert head["size_bytes"].tolist() == [600, 900, 700]
    trace.check()


def test_what_is_written_of_a_segment_is_what_was_read() -> None:
    events = [
        alloc(BASE, 1000, stream=7),
        alloc(BASE + KIB, 700, stream=7),
        event("free_requested", BASE + KIB, 700, stream=7),
    ]
    blocks = [
        block(BASE, 1024, 1000),
        block(BASE + KIB, 1024, 700) | {"state": "active_pending_free"},
        block(BASE + 2 * KIB, 2 * MIB - 2 * KIB),
    ]
    held = segment(BASE, 2 * MIB, blocks, stream=7, segment_pool_id=(3, 1))
    (written,) = Trace.from_snapshot(snapshot(events, [held])).to_snapshot()["segments"]
    assert written["requested_size"] == 1700
    assert (written["allocated_size"], written["active_size"]) == (2048, 2048)
    assert {key: written[key] for key in held} == held


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
    trace = Trace.from_snapshot(snapshot(events, segments))
    assert [s[:3] for s in trace.start_segments.tolist()] == [
        (BASE + 32 * MIB, 2 * MIB, 0),
        (BASE + 64 * MIB, 20 * MIB, 3),
        (BASE + 96 * MIB, 20 * MIB, 0),
    ]
    assert trace.start_segments["is_small"].tolist() == [True, False, False]
    kinds = trace.requests_with_trims()["kind"].tolist()
    assert kinds == [Kind.TRIM, 5, 5, 4, 1, 4], "one TRIM before a run of SEGMENT_FREE"


def test_slack_behind_a_block_that_predates_the_recording() -> None:
    # 10 MiB asked of a 20 MiB segment; what follows begins half a MiB later than it need to.
    size, slack = 10 * MIB + 512 * KIB, 512 * KIB
    second = BASE + size + slack
    rest = 20 * MIB - size - slack - 4 * MIB
    events = [alloc(second, 4 * MIB), free(BASE, size)]
    blocks = [
        block(BASE, size + slack),
        block(second, 4 * MIB, 4 * MIB),
        block(second + 4 * MIB, rest),
    ]
    trace = Trace.from_snapshot(snapshot(events, [segment(BASE, 20 * MIB, blocks)]))
    assert trace.start_blocks["block_bytes"].tolist() == [size + slack]


def test_no_slack_is_assumed_in_the_small_pool() -> None:
    blocks = [block(BASE, 2 * MIB)]
    events = [alloc(BASE + 1024, 512), free(BASE, 512), free(BASE + 1024, 512)]
    trace = Trace.from_snapshot(snapshot(events, [segment(BASE, 2 * MIB, blocks)]))
    assert trace.start_blocks["block_bytes"].tolist() == [512]


def test_several_devices() -> None:
    data = snapshot([alloc(BASE, 1)])
    data["device_traces"] += [[], [alloc(BASE, 2), alloc(BASE + 512, 3)]]
    data["segments"].append(segment(BASE, 2 * MIB, [block(BASE, 2 * MIB)], device=5))
    with pytest.raises(TraceError, match=r"holds several devices \(0, 2, 5\)"):
        Trace.from_snapshot(data)
    assert Trace.from_snapshot(data, device=2).allocations == 2
    with pytest.raises(TraceError, match="no events of device 1"):
        Trace.from_snapshot(data, device=1)


def test_load_traces_names_each_device(tmp_path: Path) -> None:
    data = snapshot([alloc(BASE, 1)])
    data["device_traces"].append([alloc(BASE, 2)])
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(data, 4))
    assert [trace.name for trace in gmlake.load_traces(path)] == ["two.pickle:0", "two.pickle:1"]
    assert gmlake.load_trace(path, 1).requests["size_bytes"].tolist() == [2]
    with pytest.raises(TraceError, match=r"two\.pickle: holds several devices"):
        gmlake.load_trace(path)


def test_old_files_lack_keys() -> None:
    # As before PyTorch 2.1: no pools, no times, no settings, blocks without addresses.
    old_block = {"size": 1 * MIB, "state": "active_allocated"}
    old_segment = {
        "device": 0,
        "address": BASE,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "blocks": [{"size": 1 * MIB, "state": "inactive"}, old_block],
    }
    old_event = {"action": "alloc", "addr": BASE, "size": 100, "stream": 0, "frames": []}
    data = {"segments": [old_segment], "device_traces": [[old_event, {"action": "snapshot"}]]}
    trace = Trace.from_snapshot(data)
    assert trace.start_blocks["address"].tolist() == [BASE + MIB]
    assert trace.requests["time_ns"].tolist() == [0]
    only_segments = Trace.from_snapshot([old_segment])
    assert len(only_segments.requests) == 0
    assert only_segments.start_blocks["requested_bytes"].tolist() == [MIB]


def test_json_and_pickle_of_every_binary_protocol_are_the_same(tmp_path: Path) -> None:
    data = snapshot([alloc(BASE, 100), free(BASE, 100)], [segment(BASE, 2 * MIB, [])])
    traces = []
    for protocol in range(2, 6):
        path = tmp_path / f"{protocol}.pickle"
        path.write_bytes(pickle.dumps(data, protocol))
        traces.append(gmlake.load_trace(path))
    path = tmp_path / "snapshot.json"
    path.write_text("\n " + json.dumps(data), encoding="utf-8")
    traces.append(gmlake.load_trace(path))
    assert all(trace == traces[0] for trace in traces)


@pytest.mark.parametrize("protocol", [0, 1])
def test_a_pickle_of_text_is_refused(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}, protocol))
    with pytest.raises(TraceError, match="nor a pickle of protocols 2 to 5"):
        gmlake.load_trace(path)


def test_pools_streams_and_negative_handles_are_kept() -> None:
    one = segment(BASE, 2 * MIB, [block(BASE, 2 * MIB)], segment_pool_id=(0, 3), stream=-2)
    trace = Trace.from_snapshot(snapshot([alloc(BASE, 1, stream=-2)], [one]))
    assert trace.final_segments[["pool_owner", "pool_number"]].tolist() == [(0, 3)]
    assert trace.requests["stream"].tolist() == [2**64 - 2]
    written = trace.to_snapshot()
    assert written["segments"][0]["segment_pool_id"] == (0, 3)
    assert written["device_traces"][0][0]["stream"] == -2


def test_out_of_memory_is_kept() -> None:
    oom = {"action": "oom", "size": 2**60, "device_free": 12345, "stream": 0, "time_us": 9}
    trace = Trace.from_snapshot(snapshot([oom]))
    assert columns(trace, "kind", "size_bytes", "address") == [(Kind.OOM, 2**60, 12345)]
    assert trace.to_snapshot()["device_traces"][0][0]["device_free"] == 12345
    trace.check()


def test_step_marks_come_from_annotations() -> None:
    data = snapshot([alloc(BASE, 1, time_us=10), alloc(BASE + 512, 1, time_us=20)])
    data["external_annotations"] = [
        {"stage": "START", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": 12},
        {"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": 15},
        {"stage": "END", "name": "something else", "device": 0, "time_us": 16},
    ]
    trace = Trace.from_snapshot(data)
    assert trace.requests["kind"].tolist() == [Kind.ALLOC, Kind.MARK, Kind.ALLOC]
    assert trace.labels == ("Optimizer.step#AdamW.step",)
    trace.check()


def test_expandable_segments_are_recognised() -> None:
    trace = Trace.from_snapshot(snapshot([event("segment_map", BASE, 20 * MIB), alloc(BASE, 1)]))
    assert trace.is_expandable
    assert trace.requests["kind"].tolist() == [Kind.SEGMENT_ALLOC, Kind.ALLOC]


def test_recorded_snapshots_survive_the_way_there_and_back(recorded_trace: Path) -> None:
    trace = gmlake.load_trace(recorded_trace)
    assert Trace.from_snapshot(trace.to_snapshot()) == trace
    assert trace.peak_live_bytes == peak_by_hand(trace)


def peak_by_hand(trace: Trace) -> int:
    sizes: dict[int, int] = {}
    live = peak = 0
    for request in trace.replay_requests().tolist():
        number, size, _, _, _, kind, _ = request
        if kind == Kind.ALLOC:
            sizes[number] = -(-size // 512) * 512
            live += sizes[number]
            peak = max(peak, live)
        elif kind == Kind.FREE:
            live -= sizes[number]
    return peak


def test_a_trace_without_addresses_becomes_a_snapshot(shipped_trace: Trace) -> None:
    written = shipped_trace.to_snapshot()
    data = pickle.dumps(written, 4)
    again = Trace.from_snapshot(pickle.loads(data))
    assert again.allocations == shipped_trace.allocations
    assert again.peak_live_bytes == shipped_trace.peak_live_bytes
    addresses = again.requests["address"][again.requests["kind"] == Kind.ALLOC]
    assert int(addresses.max()) < 2**53, "the viewer's numbers are doubles"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([alloc(BASE, -1)], "event 0: alloc: 'size' is -1, outside"),
        ([alloc(BASE, 2**48 + 1)], "event 0: alloc: 'size' is"),
        ([alloc(BASE, 10**30)], "event 0: alloc: 'size' is a int, outside"),
        ([alloc(-1, 1)], "event 0: alloc: 'addr' is -1"),
        ([alloc(2**64, 1)], "event 0: alloc: 'addr' is"),
        ([alloc(BASE, 1.5)], "event 0: alloc: 'size' is a float"),
        ([event("alloc", BASE, size=True)], "event 0: alloc: 'size' is a bool"),
        ([alloc(BASE, "1")], "event 0: alloc: 'size' is '1'"),
        ([alloc(BASE, 1), alloc(BASE, 1)], "event 1: allocates 0x7f0000000000, which is live"),
        (
            [alloc(BASE, 1), free(BASE, 1), free(BASE, 1)],
            "event 2: frees 0x7f0000000000, which event 1 freed already",
        ),
        ([free(BASE, 1), free(BASE, 1)], "event 1: frees 0x7f0000000000, which event 0"),
        ([free(BASE, 1024), free(BASE + 512, 512)], "live before recording overlap"),
        ([{"action": "alloc", "size": 1}], "event 0: alloc has no 'addr'"),
        ([{"action": "alloc", "addr": 1}], "event 0: alloc has no 'size'"),
        ([{"addr": 1, "size": 1}], "event 0: the event has no 'action'"),
        ([{"action": ["alloc"], "addr": 1, "size": 1}], "event 0: the event has no 'action'"),
        ([event("explode", 1, 1)], "event 0: the action 'explode' is not known"),
        ([alloc(BASE, 1, time_us=-5)], "event 0: alloc: 'time_us' is -5"),
        ([alloc(BASE, 1, stream="s")], "event 0: alloc: 'stream' is 's'"),
        ([None], "event 0: the event is a NoneType, not a dict"),
        ([[1, 2]], "event 0: the event is a list, not a dict"),
    ],
)
def test_bad_events_are_named(events: list[Any], reason: str) -> None:
    with pytest.raises(TraceError) as caught:
        Trace.from_snapshot(snapshot(events))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "the file holds a NoneType"),
        (7, "not a memory snapshot"),
        ("text", "not a memory snapshot"),
        ({}, "neither 'segments' nor"),
        ({"segments": 3}, "'segments' is 3, not a list"),
        ({"segments": [3]}, "segment 0 is 3, not a dict"),
        ({"segments": [], "device_traces": {}}, "'device_traces' is a dict, not a list"),
        ({"segments": [], "device_traces": [3]}, r"device_traces\[0\] is 3, not a list"),
        ({"segments": [{"address": 1}]}, "segment 0 has no 'total_size'"),
        ({"segments": [segment(BASE, 512, [], device=-1)]}, "segment 0: 'device' is -1"),
        ({"segments": [segment(BASE, 512, [], segment_pool_id=3)]}, "not a pair of numbers"),
        ({"segments": [segment(BASE, 512, [3])]}, "segment 0, block 0 is 3"),
        ({"segments": [segment(BASE, 512, [block(BASE, 1024)])]}, "lies outside its segment"),
        ({"segments": [segment(BASE, 512, [block(BASE - 1, 1)])]}, "lies outside its segment"),
        (
            {"segments": [segment(BASE, 512, [{"state": "odd", "size": 1}])]},
            "segment 0, block 0: 'state' is 'odd'",
        ),
        ({"segments": [], "allocator_settings": 3}, "'allocator_settings' is 3, not a dict"),
        ({"segments": [], "external_annotations": 3}, "'external_annotations' is 3, not a list"),
    ],
)
def test_bad_structure_is_named(data: object, reason: str) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        Trace.from_snapshot(data)
    assert "\n" not in str(caught.value)


def test_a_laugh_of_shared_entries_is_refused(tmp_path: Path) -> None:
    events = [event("segment_alloc", BASE, 2 * MIB)] * 1000
    data = pickle.dumps({"segments": [], "device_traces": [events] * 1000}, 4)
    path = tmp_path / "bomb.pickle"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="over and over"):
        gmlake.load_traces(path)


def test_a_cyclic_snapshot_is_refused_or_read(tmp_path: Path) -> None:
    data: dict[str, Any] = {"segments": [], "allocator_settings": {}}
    data["allocator_settings"]["self"] = data
    data["device_traces"] = [[data]]
    path = tmp_path / "cyclic.pickle"
    path.write_bytes(pickle.dumps(data, 4))
    with pytest.raises(TraceError, match="event 0: the event has no 'action'"):
        gmlake.load_traces(path)


def test_no_events_at_all() -> None:
    trace = Trace.from_snapshot({"segments": [], "device_traces": []})
    assert len(trace.requests) == 0
    assert trace.peak_live_bytes == 0
    assert np.array_equal(trace.replay_requests(), trace.requests)
