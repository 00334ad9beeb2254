"""Snapshot.load(): what save() wrote comes back, PyTorch's files too, and nothing hostile hangs."""

from __future__ import annotations

import json
import pickle
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.pictures.figures import Blocks, Timeline
from gmlake.snapshots import Site
from gmlake.snapshots.model import name_ranges
from gmlake.trace import Kind
from recording import BASE, MIB, alloc, block, event, figure, free, load, segment, snapshot
from snapshot_programs import busy_lake

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("policy", gmlake.policies())
@pytest.mark.parametrize(("name", "seed"), [("x.pickle", 1), ("x.json", 2), ("x.pickle", 3)])
def test_what_was_saved_comes_back(tmp_path: Path, policy: str, name: str, seed: int) -> None:
    with busy_lake(policy, seed) as lake:
        seen = lake.snapshot()
    seen.sites[2] = Site("block.1", "forward", ("forward  model.py:12",))
    seen[0].categories[: len(seen[0].categories) // 2] = 3
    seen.save(tmp_path / name)
    loaded = gmlake.Snapshot.load(tmp_path / name)
    first, second = seen[0], loaded[0]
    for column in ("spans", "ranges", "pieces", "event_sites", "start_sites"):
        assert np.array_equal(getattr(first, column), getattr(second, column)), column
    assert np.array_equal(first.events["kind"], second.events["kind"])
    is_block = np.isin(first.events["kind"], (Kind.ALLOC, Kind.FREE, Kind.OOM))
    for column in ("size_bytes", "stream", "address"):
        assert np.array_equal(first.events[column][is_block], second.events[column][is_block])
    assert second.peak.live_bytes == first.peak.live_bytes
    assert second.counters == first.counters
    assert second.total_events == first.total_events
    assert second.fragmentation == first.fragmentation
    assert [label for _, label in second.marks] == [label for _, label in first.marks]
    assert loaded.sites == seen.sites
    alive = first.lives.born >= 0
    born = (
        np.argsort(first.lives.born[alive]),
        np.argsort(second.lives.born[second.lives.born >= 0]),
    )
    assert np.array_equal(
        first.categories[alive][born[0]], second.categories[second.lives.born >= 0][born[1]]
    )
    assert str(loaded) == str(seen)


def test_what_lived_before_the_events_keeps_its_category_in_a_file(tmp_path: Path) -> None:
    with gmlake.Lake("sim", capacity="1GiB") as lake:
        lake.allocate(64 * MIB)
        ended = lake.allocate(32 * MIB)
        lake.keep_history(100)
        lake.allocate(8 * MIB)
        lake.free(ended)
        seen = lake.snapshot()
    (old,) = np.flatnonzero(seen[0].lives.requested_bytes == 64 * MIB)
    seen[0].categories[old] = 0
    name_ranges(seen[0])
    seen.save(tmp_path / "x.pickle")
    report = gmlake.Snapshot.load(tmp_path / "x.pickle").report()
    timeline = figure(report, Timeline)
    blocks = figure(report, Blocks)
    assert set(timeline.live["parameter"].tolist()) == {64.0 * MIB}
    assert [(row.size_bytes, row.category) for row in blocks.rows] == [
        (64 * MIB, "parameter"),
        (32 * MIB, "unknown"),
        (8 * MIB, "unknown"),
    ]


def test_saving_what_was_loaded_writes_the_same_file(tmp_path: Path) -> None:
    with busy_lake() as lake:
        lake.snapshot().save(tmp_path / "a.pickle")
    gmlake.Snapshot.load(tmp_path / "a.pickle").save(tmp_path / "b.pickle")
    first, second = (pickle.loads((tmp_path / f"{n}.pickle").read_bytes()) for n in "ab")
    assert first["segments"] == second["segments"]
    assert first["device_traces"] == second["device_traces"]
    assert first["gmlake"] == second["gmlake"]


def _pytorch_file(path: Path, **more: Any) -> Path:
    frames = [{"name": "forward", "filename": "/x/model.py", "line": 7}]
    old = [{"name": "load", "filename": "/x/main.py", "line": 2}]
    held = {**block(BASE + 8 * MIB, 4 * MIB, 4 * MIB), "frames": old}
    blocks = [block(BASE, 8 * MIB), held, block(BASE + 12 * MIB, 8 * MIB)]
    events = [
        event("segment_alloc", BASE, 20 * MIB),
        alloc(BASE, 3 * MIB, frames=frames),
        event("snapshot", 0, 0),
        alloc(BASE + 12 * MIB, 5 * MIB, frames=frames, user_metadata="step 1"),
        free(BASE, 3 * MIB),
        free(BASE + 12 * MIB, 5 * MIB),
    ]
    document = {**snapshot(events, [segment(BASE, 20 * MIB, blocks)]), **more}
    path.write_bytes(pickle.dumps(document))
    return path


def test_a_file_of_pytorch_tells_places_peak_and_reserved_memory(tmp_path: Path) -> None:
    loaded = gmlake.Snapshot.load(_pytorch_file(tmp_path / "torch.pickle"))
    seen = loaded[0]
    assert seen.peak.live_bytes == 12 * MIB
    assert seen.reserved_bytes == 20 * MIB
    assert seen.live_bytes == 4 * MIB
    assert seen.free_bytes == 16 * MIB
    assert seen.fragmentation == 0.5
    report = loaded.report()
    blocks = figure(report, Blocks)
    assert [(row.size_bytes, row.site) for row in blocks.rows] == [
        (5 * MIB, "model.py:7 in forward() · step 1"),
        (4 * MIB, "main.py:2 in load()"),
        (3 * MIB, "model.py:7 in forward()"),
    ]
    timeline = figure(report, Timeline)
    assert timeline.reserved is not None
    assert timeline.reserved.max() == 20 * MIB


def test_a_trace_and_a_list_of_segments_are_read(tmp_path: Path) -> None:
    path = _pytorch_file(tmp_path / "torch.pickle")
    trace = gmlake.load_trace(path)
    trace.save(tmp_path / "x.gmtrace")
    assert gmlake.Snapshot.load(tmp_path / "x.gmtrace")[0].peak.live_bytes == 12 * MIB
    document = pickle.loads(path.read_bytes())
    assert load(tmp_path, document["segments"])[0].live_bytes == 4 * MIB


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was executed",))


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "trap.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], "gmlake": _Trap()}))
    with pytest.raises(gmlake.TraceError, match=r"trap\.pickle"):
        gmlake.Snapshot.load(path)


SPOILED: list[tuple[str, Any]] = [
    ("version", 3),
    ("version", None),
    ("sites", [[1, 2, 3, 4]]),
    ("sites", 5),
    ("sites", [[-1, "", "", []]]),
    ("devices", 3),
    ("devices", [4]),
    ("regions", [[1, 2]]),
    ("regions", [[-1, 2, 3, 4, 5, 6, True]]),
    ("regions", [[1 << 70, 2, 3, 4, 5, 6, True]]),
    ("regions", [["a", "b", "c", "d", "e", "f", "g"]]),
    ("regions", []),
    ("regions", [[1, 2, 3, 4, 5, 77, True]] * 999),
    ("regions", [[1, 1 << 60, 3, 4, 5, 0, True]] * 999),
    ("pieces", [[1, 2, 3, 1 << 20]]),
    ("ranges", [7]),
    ("ranges", "text"),
    ("labels", 9),
    ("others", [[0, 0, 0, 1]]),
    ("others", [[0, -1, 5, 8]]),
    ("others", "text"),
    ("counters", 3),
    ("stream_pairs", [1]),
    ("total_events", -3),
    ("total_events", "many"),
]


@pytest.mark.parametrize(("key", "value"), SPOILED)
def test_a_spoiled_part_is_a_clear_error(tmp_path: Path, key: str, value: Any) -> None:
    with busy_lake(requests=400) as lake:
        document = json.loads(lake.snapshot().to_json())
    beside = document["gmlake"]
    where = beside if key in beside else beside["devices"][0]
    assert key in where
    where[key] = value
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(gmlake.TraceError, match=r"bad\.json"):
        gmlake.Snapshot.load(tmp_path / "bad.json")


def test_odd_counters_and_categories_do_no_harm(tmp_path: Path) -> None:
    with busy_lake(requests=400) as lake:
        document = json.loads(lake.snapshot().to_json())
    beside = document["gmlake"]["devices"][0]
    beside["counters"] = {"live_bytes": "many", "reserved_bytes": -5, "states": {"a": [1]}}
    beside["ranges"] = [[*row[:5], 99, row[6]] for row in beside["ranges"]]
    for entry in document["device_traces"][0]:
        entry["category"] = "<script>"
    (tmp_path / "odd.json").write_text(json.dumps(document))
    loaded = gmlake.Snapshot.load(tmp_path / "odd.json")
    str(loaded)
    loaded.report()
    loaded.to_json()
    loaded.to_perfetto(tmp_path / "odd.perfetto.json")


def test_frames_named_a_million_times_are_looked_at_once(tmp_path: Path) -> None:
    frames = [{"name": "f", "filename": "x.py", "line": 1}] * 10_000
    events: list[Any] = []
    for number in range(20_000):
        address = BASE + 512 * (number % 100)
        events += [alloc(address, 512, frames=frames), free(address, 512, frames=frames)]
    begin = time.process_time()
    loaded = load(tmp_path, snapshot(events))
    assert time.process_time() - begin < 60
    assert len(loaded.sites) == 1
    assert len(loaded.sites[1].frames) <= 64


def test_a_perfetto_trace_has_counters_slices_and_instants(tmp_path: Path) -> None:
    with busy_lake() as lake:
        seen = lake.snapshot()
    seen.to_perfetto(tmp_path / "x.json", smallest="20MiB")
    document = json.loads((tmp_path / "x.json").read_text())
    entries = document["traceEvents"]
    counters = [e["args"]["live"] for e in entries if e["ph"] == "C"]
    assert max(counters) == seen[0].peak.live_bytes
    begun = {e["id"]: e["ts"] for e in entries if e["ph"] == "b"}
    ended = {e["id"]: e["ts"] for e in entries if e["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert all(begun[number] <= ended[number] for number in begun)
    assert len(begun) == int((seen[0].lives.size_bytes >= 20 * MIB).sum())
    assert {e["name"] for e in entries if e["ph"] == "i"} >= {"mark 3"}
    refused = [e for e in entries if e["ph"] == "i" and "out of memory" in e["name"]]
    assert len(refused) == int((seen[0].events["kind"] == Kind.OOM).sum())


def test_what_was_added_for_the_viewer_is_no_part_of_the_trace(
    shipped_trace: gmlake.Trace,
) -> None:
    """Blocks that lay in no segment get one while they live: for the viewer, not for a replay."""
    trace = shipped_trace
    written = trace.to_snapshot()
    added = [entry for entry in written["device_traces"][0] if entry.get("gmlake_added")]
    assert {entry["action"] for entry in added} <= {"segment_alloc", "segment_free", "snapshot"}
    assert added
    again = gmlake.Trace.from_snapshot(written)
    told = trace.requests[~np.isin(trace.requests["kind"], (Kind.MARK, Kind.TRIM))]
    assert again.requests[["size_bytes", "kind"]].tolist() == told[["size_bytes", "kind"]].tolist()
