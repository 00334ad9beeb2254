"""What pytorch.org/memory_viz and torch.cuda._memory_viz require of the files that save() writes.

A test for each requirement: the pickle's instructions, the keys, addresses, segments and events.
"""

from __future__ import annotations

import importlib
import json
import pickletools
import subprocess
import sys
from collections import Counter
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from developer import needs_lab
from gmlake.snapshots.files import to_json
from gmlake.snapshots.model import SpanKind
from gmlake.snapshots.opening import read_pickle
from gmlake.snapshots.sites import Site
from gmlake.trace.layout import Kind
from snapshot_programs import busy_lake, unwind

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = gmlake.policies()

PLAIN_OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "EMPTY_DICT"),
    *("EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS"),
    *("SETITEM", "SETITEMS", "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINUNICODE"),
    *("BINUNICODE", "NEWTRUE", "NEWFALSE", "NONE", "BINFLOAT"),
}
"""What the viewer's own unpickler knows, of what protocol 4 has."""


@pytest.fixture(scope="module", params=POLICIES)
def seen(request: pytest.FixtureRequest) -> gmlake.Snapshot:
    with busy_lake(request.param) as lake:
        return lake.snapshot()


@pytest.fixture(scope="module")
def stitched() -> gmlake.Snapshot:
    with busy_lake() as lake:
        return lake.snapshot()


@pytest.fixture(scope="module")
def saved(seen: gmlake.Snapshot, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "x.pickle"
    seen.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def plain(saved: bytes) -> dict[str, Any]:
    found = read_pickle(saved)
    assert isinstance(found, dict)
    return found


def test_the_pickle_has_protocol_4_and_plain_types_only(saved: bytes) -> None:
    opcodes = list(pickletools.genops(saved))
    assert opcodes[0][0].name == "PROTO"
    assert opcodes[0][1] == 4
    assert {opcode.name for opcode, _, _ in opcodes} <= PLAIN_OPCODES


def test_no_number_takes_more_than_eight_bytes(saved: bytes) -> None:
    longs = [value for opcode, value, _ in pickletools.genops(saved) if opcode.name == "LONG1"]
    assert all(-(1 << 63) <= int(value or 0) < 1 << 63 for value in longs)


def test_addresses_fit_into_the_numbers_of_javascript(plain: dict[str, Any]) -> None:
    addresses = [s["address"] for s in plain["segments"]]
    addresses += [e.get("addr", 0) for e in plain["device_traces"][0]]
    assert max(addresses) < 1 << 53


def test_an_address_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    trace = gmlake.Trace.from_snapshot(
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1 << 60, "size": 512}]]}
    )
    trace.save(tmp_path / "far.gmlake")
    snapshot = gmlake.Snapshot.load(tmp_path / "far.gmlake")
    with pytest.raises(gmlake.Error, match="2\\^53"):
        snapshot.save(tmp_path / "far.pickle")


def test_every_required_key_is_there(plain: dict[str, Any]) -> None:
    segment_keys = {"device", "address", "total_size", "stream", "blocks", "segment_pool_id"}
    segment_keys |= {"segment_type", "allocated_size", "active_size", "requested_size", "frames"}
    for segment in plain["segments"]:
        assert segment_keys <= set(segment)
        for block in segment["blocks"]:
            assert {"address", "size", "requested_size", "state", "frames"} <= set(block)
    for event in plain["device_traces"][0]:
        assert {"action", "size", "stream", "time_us", "frames"} <= set(event)
        assert ("device_free" if event["action"] == "oom" else "addr") in event
        assert isinstance(event["frames"], list)


def test_blocks_tile_their_segment(plain: dict[str, Any]) -> None:
    for segment in plain["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]


def test_times_are_microseconds_of_the_wall_clock(plain: dict[str, Any]) -> None:
    times = [event["time_us"] for event in plain["device_traces"][0]]
    assert times == sorted(times)
    assert 1.6e15 < times[0] < 4e15


def test_a_free_is_completed_right_after_it_is_requested(plain: dict[str, Any]) -> None:
    events = plain["device_traces"][0]
    actions = Counter(event["action"] for event in events)
    assert actions["free_completed"] > 100
    for event, following in pairwise(events):
        if event["action"] == "free_requested":
            assert (following["action"], following["addr"]) == ("free_completed", event["addr"])


def test_every_block_is_in_a_segment_at_every_event(plain: dict[str, Any]) -> None:
    assert list(unwind(plain["segments"], plain["device_traces"][0])) == []


@needs_lab
def test_what_a_view_took_from_base_has_the_stream_of_base() -> None:
    with gmlake.Lake("sim", "gmlake-paper", capacity="1GiB", frag_limit="2MiB") as lake:
        lake.keep_history(1000)
        blocks = [lake.allocate(60 << 20, stream=5) for _ in range(16)]
        for block in blocks[::2]:
            lake.free(block)
        lake.allocate(180 << 20, stream=5)
        plain = json.loads(to_json(lake.snapshot()))
    taken = [one for one in plain["device_traces"][0] if one["action"] == "segment_unmap"]
    assert [(one["size"], one["stream"]) for one in taken] == [(60 << 20, 5)] * 3


@pytest.mark.parametrize("policy", gmlake.policies())
@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_segment_given_back_for_another_of_its_size_is_told(policy: str, seed: int) -> None:
    with busy_lake(policy, seed) as lake:
        plain = json.loads(to_json(lake.snapshot()))
    assert list(unwind(plain["segments"], plain["device_traces"][0])) == []


def test_no_physical_byte_is_drawn_at_two_addresses(
    seen: gmlake.Snapshot, plain: dict[str, Any]
) -> None:
    device = seen[0]
    bases = []
    for segment in plain["segments"]:
        begin, end = segment["address"], segment["address"] + segment["total_size"]
        around = np.flatnonzero(device.spans["address"] <= begin)
        span = int(around[np.argmax(device.spans["address"][around])])
        if device.spans["kind"][span] == SpanKind.VIEW:
            mine = device.pieces[device.pieces["span"] == span]
            for address, base, size, _ in mine.tolist():
                first, last = max(address, begin), min(address + size, end)
                if first < last:
                    bases.append((base + first - address, base + last - address))
        else:
            bases.append((begin, end))
    bases.sort()
    assert all(one[1] <= other[0] for one, other in pairwise(bases))
    drawn_bytes = sum(end - begin for begin, end in bases)
    assert drawn_bytes == sum(s["total_size"] for s in plain["segments"])
    assert drawn_bytes <= device.reserved_bytes


def test_stitched_blocks_have_segment_events_and_not_only_maps() -> None:
    with gmlake.Lake("sim", capacity="64MiB") as lake:
        blocks = [lake.allocate(8 << 20) for _ in range(8)]
        lake.keep_history(100)
        for block in blocks[::2]:
            lake.free(block)
        stitched = lake.allocate(32 << 20)
        assert stitched.state == "stitch"
        plain = json.loads(lake.snapshot().to_json())
        events = plain["device_traces"][0]
        actions = [event["action"] for event in events]
        alloc = next(i for i, e in enumerate(events) if e["action"] == "alloc")
        assert events[alloc - 1]["action"] == "segment_alloc"
        assert events[alloc - 1]["addr"] == events[alloc]["addr"] == stitched.address
        assert actions.count("segment_unmap") == 4
        assert {s["address"] for s in plain["segments"]} >= {stitched.address}
        assert sum(s["total_size"] for s in plain["segments"]) == 64 << 20
        lake.free(stitched)
        plain = json.loads(lake.snapshot().to_json())
        events = plain["device_traces"][0]
        assert [e["action"] for e in events][-3:] == [
            "free_requested",
            "free_completed",
            "segment_free",
        ]
        assert list(unwind(plain["segments"], events)) == []


def reserved_by_events(events: list[dict[str, Any]]) -> list[int]:
    """Return what is held behind each event, if nothing was before the first."""
    change = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    return list(accumulate(change.get(e["action"], 0) * e["size"] for e in events))


@pytest.mark.parametrize("policy", POLICIES)
def test_memory_is_drawn_from_where_it_was_reserved_on(policy: str) -> None:
    with gmlake.Lake("sim", policy, capacity="1GiB") as lake:
        lake.keep_history(1000)
        expected = []
        blocks = []
        for size in (5, 30, 12, 90):
            blocks.append(lake.allocate(size << 20))
            expected.append(lake.stats()["reserved_bytes"])
        while blocks:
            lake.free(blocks.pop())
        lake.trim()
        left = lake.stats()["reserved_bytes"]
        plain = json.loads(lake.snapshot().to_json())
    events = plain["device_traces"][0]
    assert list(unwind(plain["segments"], events)) == []
    held = reserved_by_events(events)
    assert [held[i] for i, e in enumerate(events) if e["action"] == "alloc"] == expected
    assert held[-1] == sum(s["total_size"] for s in plain["segments"]) == left


def test_segments_of_their_own_fill_the_timeline_of_segments() -> None:
    """It pairs segment_alloc with segment_free by address, and knows of no part of a segment."""
    with gmlake.Lake("sim", "caching", capacity="1GiB") as lake:
        lake.keep_history(1000)
        blocks = [lake.allocate(30 << 20) for _ in range(4)]
        lake.free(blocks.pop(1))
        lake.trim()
        plain = json.loads(lake.snapshot().to_json())
    open_segments: dict[int, int] = {}
    for event in plain["device_traces"][0]:
        if event["action"] == "segment_alloc":
            open_segments[event["addr"]] = event["size"]
        elif event["action"] == "segment_free":
            assert open_segments.pop(event["addr"]) == event["size"]
    assert open_segments == {s["address"]: s["total_size"] for s in plain["segments"]}
    assert len(open_segments) == 3


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_events_of_segments_survive_the_file(tmp_path: Path, seed: int) -> None:
    with busy_lake("stitch", seed) as lake:
        seen = lake.snapshot()
    seen.save(tmp_path / "x.pickle")
    again = gmlake.Snapshot.load(tmp_path / "x.pickle")
    kinds = [int(Kind.SEGMENT_ALLOC), int(Kind.SEGMENT_FREE)]
    told, read = (one[0].events[np.isin(one[0].events["kind"], kinds)] for one in (seen, again))
    assert len(told) > 2
    for name in ("address", "size_bytes", "kind"):
        assert told[name].tolist() == read[name].tolist()


def test_one_category_is_unknown_where_there_are_any() -> None:
    with gmlake.Lake("sim", capacity="1GiB") as lake:
        lake.allocate(2 << 20)
        lake.keep_history(10)
        lake.allocate(2 << 20)
        seen = lake.snapshot()
    assert '"category"' not in seen.to_json()
    seen[0].categories[:] = 0
    events = json.loads(seen.to_json())["device_traces"][0]
    categories = {event["action"]: event["category"] for event in events if "category" in event}
    assert categories.pop("alloc") == "parameter"
    assert set(categories.values()) == {"unknown"}
    last = events[-1]
    assert (last["action"], last["addr"], last["size"]) == ("snapshot", 0, 4 << 20)


def test_frames_are_lists_of_name_file_and_line() -> None:
    site = Site("layer.3", "forward", ("forward  model.py:12", "odd"))
    with busy_lake() as lake:
        seen = lake.snapshot()
    seen.sites[3] = site
    events = json.loads(seen.to_json())["device_traces"][0]
    frames = next(e["frames"] for e in events if e.get("site") == 3)
    assert frames[0] == {"name": "forward", "filename": "model.py", "line": 12}
    assert all({"name", "filename", "line"} <= set(frame) for frame in frames)
    assert frames[-1]["name"] == "layer.3"


def test_json_holds_the_same(seen: gmlake.Snapshot, tmp_path: Path, plain: dict[str, Any]) -> None:
    seen.save(tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(plain))


@pytest.mark.torch
@pytest.mark.parametrize("command", ["stats", "trace"])
def test_the_text_viewer_prints_it(stitched: gmlake.Snapshot, tmp_path: Path, command: str) -> None:
    stitched.save(tmp_path / "x.pickle")
    done = _run_viewer(command, str(tmp_path / "x.pickle"))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 100


@pytest.mark.torch
@pytest.mark.parametrize("command", ["trace_plot", "segment_plot"])
def test_the_text_viewer_plots_it(stitched: gmlake.Snapshot, tmp_path: Path, command: str) -> None:
    stitched.save(tmp_path / "x.pickle")
    done = _run_viewer(command, str(tmp_path / "x.pickle"), "-o", str(tmp_path / "out.html"))
    assert done.returncode == 0, done.stderr
    assert "MemoryViz" in (tmp_path / "out.html").read_text()


@pytest.mark.torch
def test_the_text_viewer_reads_segments_and_memory(plain: dict[str, Any]) -> None:
    """`segments` and `memory` on the command line fetch a script from the network for this."""
    memory_viz = importlib.import_module("torch.cuda._memory_viz")
    for command in (memory_viz.segments, memory_viz.memory):
        lines = command(plain, format_flamegraph=str).splitlines()
        assert any(";active_allocated;" in line for line in lines)
    # Fails unless blocks and free memory add up to the segments.
    assert "total_reserved" in memory_viz.segsum(plain)


def _run_viewer(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.cuda._memory_viz", *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
