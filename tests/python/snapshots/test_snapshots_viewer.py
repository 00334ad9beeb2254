"""What pytorch.org/memory_viz and torch.cuda._memory_viz require of the files that save() writes.

A test for each requirement: the pickle's instructions, the keys, addresses, segments and events.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.snapshots.files import to_json
from gmlake.snapshots.opening import read_pickle
from gmlake.trace.layout import Kind
from snapshot_programs import busy_lake, unwind

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = gmlake.policies()
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


@pytest.mark.parametrize("policy", gmlake.policies())
@pytest.mark.parametrize("seed", [2, 3, 5])
def test_a_segment_given_back_for_another_of_its_size_is_told(policy: str, seed: int) -> None:
    with busy_lake(policy, seed) as lake:
        plain = json.loads(to_json(lake.snapshot()))
    assert list(unwind(plain["segments"], plain["device_traces"][0])) == []


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
