"""What a snapshot says of one moment, and its figures: right, small, and honest about both."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.pictures.figures import AddressMap, Blocks, Moments, Packing, Timeline
from gmlake.snapshots import report_of
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace import REQUEST, Kind, Trace
from recording import figure
from snapshot_programs import MIB, busy_lake

if TYPE_CHECKING:
    from pathlib import Path

MOST = 5000


class Restless:
    """A lake whose program goes on while it is looked at."""

    def __init__(self, lake: gmlake.Lake, seed: int) -> None:
        self._lake, self._live = lake, [lake.allocate(MIB) for _ in range(30)]
        self._chance = random.Random(seed)  # noqa: S311

    def __getattr__(self, name: str) -> Any:
        chance, live = self._chance, self._live
        for _ in range(20):
            if len(live) > 30:
                self._lake.free(live.pop(chance.randrange(len(live))))
            live.append(self._lake.allocate(chance.choice([4096, MIB, 3 * MIB, 30 * MIB])))
        return getattr(self._lake, name)


@pytest.mark.parametrize("max_events", [100, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_never_stops_is_seen(seed: int, max_events: int, tmp_path: Path) -> None:
    with gmlake.Lake("sim", capacity="20GiB") as lake:
        lake.keep_history(max_events)
        restless: Any = Restless(lake, seed)
        for _ in range(5):
            seen = gmlake.snapshots.snapshot_lake(restless)
            seen[0].trace.check()
            assert len(seen[0].blocks)
            seen.save(tmp_path / "seen.pickle")
            gmlake.load(tmp_path / "seen.pickle")


def test_views_show_where_their_bytes_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlake.snapshots.maps.MOST_PIECES", 40_000)
    with busy_lake(seed=3) as lake:  # at its end a view is live
        seen = lake.snapshot()
    report = seen.report()
    drawn, last = figure(report, AddressMap), len(figure(report, Moments).moments) - 1
    pieces = [piece for row in drawn.rows for piece in row if piece.first <= last < piece.end]
    held = [piece for piece in pieces if piece.kind == "held"]
    spans: list[tuple[int, int]] = []
    for piece in sorted(held, key=lambda one: one.address):
        begin = spans.pop()[0] if spans and spans[-1][1] == piece.address else piece.address
        spans.append((begin, piece.address + piece.size_bytes))
    assert sum(piece.size_bytes for piece in held) == seen[0].reserved_bytes
    live = [view for view in drawn.views if view.is_live]
    assert live
    for view in live:
        assert sum(size for _, _, size in view.pieces) == view.size_bytes
        for _, place, size in view.pieces:
            assert any(begin <= place and place + size <= end for begin, end in spans)
    inside = sorted((p.address, p.size_bytes) for p in pieces if p.kind in ("used", "free"))
    assert sum(size for _, size in inside) == seen[0].reserved_bytes
    assert all(at + size <= following for (at, size), (following, _) in pairwise(inside))


def test_stacked_categories_are_the_live_bytes() -> None:
    with busy_lake() as lake:
        seen = lake.snapshot()
    one = seen[0]
    one.categories[:] = np.arange(len(one.categories)) % 6
    drawn = figure(seen.report(), Timeline)
    total = np.sum(list(drawn.live.values()), axis=0)
    assert len(drawn.live) == 6
    assert total.max() == one.peak.live_bytes
    assert total[-1] == one.live_bytes
    assert (np.diff(drawn.at) >= 0).all()


def _long_trace(events: int) -> Trace:
    """Blocks that come and go in a ring of 5000 places, each live for 2500 requests."""
    pairs = events // 2
    requests = np.zeros(2 * pairs, REQUEST)
    number = np.arange(pairs)
    sizes = 512 * (1 + number * 7919 % 4096)
    alive = 2500
    rows = np.concatenate([2 * number, np.minimum(2 * (number + alive) + 1, 2 * pairs - 1)])
    order = np.argsort(rows, kind="stable")
    requests["id"] = np.concatenate([number, number])[order]
    requests["size_bytes"] = np.concatenate([sizes, sizes])[order]
    requests["address"] = (1 << 40) + (requests["id"] % 5000) * np.uint64(1 << 21)
    requests["time_ns"] = 1_700_000_000_000_000_000 + 1000 * np.arange(2 * pairs)
    requests["kind"] = np.concatenate([np.full(pairs, Kind.ALLOC), np.full(pairs, Kind.FREE)])[
        order
    ]
    return Trace(requests)


def test_a_million_events_become_a_few_thousand_points_in_seconds() -> None:
    trace = _long_trace(1_000_000)
    begin = time.process_time()
    report = report_of(of_one_trace(trace))
    assert time.process_time() - begin < 60  # takes about 2
    timeline, packing = figure(report, Timeline), figure(report, Packing)
    assert len(timeline.at) <= MOST
    assert len(packing.begin) <= MOST
    assert len(figure(report, Blocks).rows) <= MOST
    assert np.sum(list(timeline.live.values()), axis=0).max() == trace.peak_live_bytes
    assert "1,000,000 events" in timeline.note
    assert "are drawn as" in packing.note
    assert packing.bound_bytes == trace.peak_live_bytes
    counted = [label for label in packing.labels if label.endswith("small blocks")]
    merged = sum(int(label.split()[0].replace(",", "")) for label in counted)
    assert merged + len(packing.begin) - len(counted) == trace.allocations


def test_nothing_is_held_where_pytorch_was_not_served() -> None:
    seen = gmlake.snapshot()
    assert list(seen) == []
    assert "no memory" in str(gmlake.memory_summary())
    with pytest.raises(ValueError, match="device 0"):
        gmlake.snapshot(0)
    assert seen.report().figures == ()
