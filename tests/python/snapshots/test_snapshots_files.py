"""gmlake.load(): what save() wrote comes back, PyTorch's files too, and nothing hostile hangs."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.pictures.figures import Blocks, Timeline
from gmlake.snapshots import Site
from gmlake.snapshots.model import UNKNOWN, name_ranges
from gmlake.trace import Kind
from recording import MIB, figure
from snapshot_programs import busy_lake

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("policy", gmlake.policies())
@pytest.mark.parametrize(("name", "seed"), [("x.pickle", 1), ("x.json", 2), ("x.pickle", 3)])
def test_what_was_saved_comes_back(tmp_path: Path, policy: str, name: str, seed: int) -> None:
    with busy_lake(policy, seed) as lake:
        seen = lake.snapshot()
    seen.sites[2] = Site("block.1", ("forward  model.py:12",))
    seen[0].event_sites[seen[0].events["kind"] == Kind.ALLOC] = 2
    name_ranges(seen[0])
    seen.save(tmp_path / name)
    loaded = gmlake.load(tmp_path / name)
    first, second = seen[0], loaded[0]
    for column in ("spans", "pieces"):
        assert np.array_equal(getattr(first, column), getattr(second, column)), column
    assert np.array_equal(first.event_sites > 0, second.event_sites > 0)
    for column in ("address", "size_bytes", "requested_bytes", "span", "is_used"):
        assert np.array_equal(first.ranges[column], second.ranges[column]), column
    assert np.array_equal(first.events["kind"], second.events["kind"])
    is_block = np.isin(first.events["kind"], (Kind.ALLOC, Kind.FREE, Kind.OOM))
    for column in ("size_bytes", "stream", "address"):
        assert np.array_equal(first.events[column][is_block], second.events[column][is_block])
    assert second.peak.live_bytes == first.peak.live_bytes
    assert second.counters == first.counters
    assert second.fragmentation == first.fragmentation
    assert list(loaded.sites.values()) == [seen.sites[2]]
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
    seen[0].told_categories = np.full(len(seen[0].categories), UNKNOWN, np.int8)
    seen[0].told_categories[old] = 0
    seen.save(tmp_path / "x.pickle")
    report = gmlake.load(tmp_path / "x.pickle").report()
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
    gmlake.load(tmp_path / "a.pickle").save(tmp_path / "b.pickle")
    first, second = (pickle.loads((tmp_path / f"{n}.pickle").read_bytes()) for n in "ab")
    assert first["segments"] == second["segments"]
    assert first["device_traces"] == second["device_traces"]
    assert first["gmlake"] == second["gmlake"]


SPOILED: list[tuple[str, Any]] = [
    ("version", 2),
    ("version", None),
    ("devices", 3),
    ("devices", [4]),
    ("views", [[1, 2, 3]]),
    ("views", [[-1, 2]]),
    ("views", [[1 << 70, 2]]),
    ("views", [["a", "b"]]),
    ("views", [[1, 1 << 60]]),
    ("pieces", 7),
    ("pieces", [7]),
    ("pieces", "text"),
    ("counters", 3),
    ("stream_pairs", [1]),
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
        gmlake.load(tmp_path / "bad.json")
