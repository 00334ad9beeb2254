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
    stumbled = list(unwind(plain["segments"], events))
    assert stumbled == [] or policy == "stitch"
    held = reserved_by_events(events)
    assert [held[i] for i, e in enumerate(events) if e["action"] == "alloc"] == expected
    assert held[-1] == sum(s["total_size"] for s in plain["segments"]) == left


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_events_of_segments_survive_the_file(tmp_path: Path, seed: int) -> None:
    with busy_lake("stitch", seed) as lake:
        seen = lake.snapshot()
    seen.save(tmp_path / "x.pickle")
    again = gmlake.load(tmp_path / "x.pickle")
    kinds = [int(Kind.SEGMENT_ALLOC), int(Kind.SEGMENT_FREE)]
    told, read = (one[0].events[np.isin(one[0].events["kind"], kinds)] for one in (seen, again))
    assert len(told) > 2
    for name in ("address", "size_bytes", "kind"):
        assert told[name].tolist() == read[name].tolist()
