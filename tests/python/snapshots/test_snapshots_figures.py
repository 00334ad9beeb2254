"""What a snapshot says of one moment, and its figures: right, small, and honest about both."""

from __future__ import annotations

import pickle
import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gmlake
from gmlake.pictures.figures import AddressMap, Blocks, Moments, Packing, Policies, Timeline
from gmlake.snapshots import SpanKind
from gmlake.snapshots.capture import capture, providers
from gmlake.snapshots.whole import snapshot_lake
from gmlake.trace import REQUEST, Kind
from recording import BASE, alloc, figure, snapshot
from snapshot_programs import MIB, busy_lake

if TYPE_CHECKING:
    from pathlib import Path

MOST = 5000


@pytest.mark.parametrize("policy", gmlake.policies())
def test_the_events_lead_to_what_is_held(policy: str) -> None:
    with busy_lake(policy) as lake:
        stats = lake.stats()
        seen = lake.snapshot()[0]
    seen.trace.check()
    assert seen.lives.live_bytes[-1] == stats["live_bytes"] == seen.live_bytes
    alive = np.flatnonzero(seen.lives.died == len(seen.events))
    assert len(alive) == len(seen.blocks) == stats["live_blocks"]
    assert set(seen.lives.address[alive].tolist()) == set(seen.blocks["address"].tolist())
    assert (seen.blocks["site"][np.isin(seen.blocks["address"], seen.events["address"])] > 0).any()


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
def test_a_program_that_never_stops_is_seen_at_one_moment(
    seed: int, max_events: int, tmp_path: Path
) -> None:
    with gmlake.Lake("sim", capacity="20GiB") as lake:
        lake.keep_history(max_events)
        restless: Any = Restless(lake, seed)
        for _ in range(5):
            seen = capture(restless)
            seen.trace.check()
            alive = np.flatnonzero(seen.lives.died == len(seen.events))
            blocks = seen.blocks["address"]
            assert set(seen.lives.address[alive].tolist()) == set(blocks.tolist())
            has_all = seen.total_events == len(seen.events)
            assert has_all == (max_events == 10_000) == (len(seen.trace.start_blocks) == 0)
            gmlake.Snapshot((seen,)).save(tmp_path / "seen.pickle")
            gmlake.Snapshot.load(tmp_path / "seen.pickle")


def test_marks_made_meanwhile_have_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[int, str] = {}
    monkeypatch.setattr(providers, "labels", names.copy)

    class Marked(Restless):
        def __getattr__(self, name: str) -> Any:
            names[len(names)] = f"step {len(names)}"
            self._lake.note_mark(len(names) - 1)
            return super().__getattr__(name)

    with gmlake.Lake("sim", capacity="20GiB") as lake:
        lake.keep_history(10_000)
        restless: Any = Marked(lake, seed=0)
        labels = [label for _, label in snapshot_lake(restless)[0].marks]
    assert len(labels) > 1
    assert labels == [f"step {number}" for number in range(len(labels))]


@pytest.mark.parametrize("seed", range(4))
def test_the_peak_is_that_of_a_walk_over_the_events(seed: int) -> None:
    with busy_lake(seed=seed) as lake:
        seen = lake.snapshot()[0]
    start = seen.trace.start_blocks
    live = {
        int(number): int(size)
        for number, size in zip(start["id"], start["requested_bytes"], strict=True)
    }
    best, held = -1, dict(live)

    def sizes() -> int:
        return sum(-(-size // 512) * 512 for size in live.values())

    if sizes() > best:
        best, held = sizes(), dict(live)
    for row in seen.events.tolist():
        if row[5] == Kind.ALLOC:
            live[row[0]] = row[1]
        elif row[5] == Kind.FREE:
            live.pop(row[0])
        if row[5] == Kind.ALLOC and sizes() > best:
            best, held = sizes(), dict(live)
    assert seen.peak.live_bytes == best
    assert sorted(seen.peak.ids.tolist()) == sorted(held)


def test_a_peak_before_the_kept_events_is_said() -> None:
    with gmlake.Lake("sim", capacity="1GiB") as lake:
        lake.free(lake.allocate(500 * MIB))
        lake.keep_history(100)
        block = lake.allocate(100 * MIB)
        report = lake.snapshot().report()
        seen = lake.snapshot()[0]
        lake.free(block)
    assert not seen.peak.is_whole
    assert seen.peak.earlier_bytes == 500 * MIB
    assert seen.peak.live_bytes == 100 * MIB
    assert "500 MiB before the events" in dict(report.facts)["live at the peak"]
    assert "higher peak" in figure(report, Blocks).note


def test_fragmentation_is_what_cannot_be_had() -> None:
    with gmlake.Lake("sim", "caching", capacity="1GiB") as lake:
        blocks = [lake.allocate(100 * MIB) for _ in range(4)]
        assert lake.snapshot().fragmentation == {0: 0.0}
        for block in blocks[::2]:
            lake.free(block)
        assert lake.snapshot().fragmentation[0] == pytest.approx(0.5)
        lake.free(blocks[1])
        assert lake.snapshot(device=3).fragmentation[3] == pytest.approx(2 / 3)
        lake.trim()
        assert lake.snapshot()[0].free_bytes == 0
        assert lake.snapshot().fragmentation == {0: 0.0}
    with gmlake.Lake("sim", capacity="1GiB") as lake:
        assert lake.snapshot().fragmentation == {0: 0.0}
        blocks = [lake.allocate(100 * MIB) for _ in range(4)]
        for block in blocks[::2]:
            lake.free(block)
        assert lake.snapshot().fragmentation[0] == pytest.approx(0.0, abs=0.01)
    with pytest.raises(ValueError, match="closed"):
        lake.snapshot()


def test_a_lake_that_keeps_no_events_still_shows_what_is_held() -> None:
    with gmlake.Lake("sim", capacity="1GiB") as lake:
        lake.allocate(100 * MIB)
        seen = lake.snapshot()
    assert len(seen[0].events) == 0
    assert seen[0].live_bytes == seen[0].peak.live_bytes == 100 * MIB
    assert [type(figure) for figure in seen.report().figures] == [Moments, AddressMap, Blocks]
    with pytest.raises(KeyError):
        seen[1]


def test_views_show_where_their_bytes_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlake.snapshots.maps.MOST_PIECES", 40_000)
    with busy_lake() as lake:
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
    assert {mark.label for mark in drawn.marks} >= {"mark 3"}


def test_without_times_pictures_count_events() -> None:
    trace = _long_trace(1000)
    timed = gmlake.report_of(trace)
    assert figure(timed, Timeline).seconds is not None
    assert figure(timed, Packing).seconds is not None
    trace.requests["time_ns"] = 0
    counted = gmlake.report_of(trace)
    assert figure(counted, Timeline).seconds is None
    assert figure(counted, Packing).seconds is None
    for report in (timed, counted):
        assert figure(report, Timeline).unit == figure(report, Packing).unit == "events"
        assert figure(report, Timeline).at.tolist() == list(range(1000))


def _long_trace(events: int) -> gmlake.Trace:
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
    return gmlake.Trace(requests)


def test_a_million_events_become_a_few_thousand_points_in_seconds() -> None:
    trace = _long_trace(1_000_000)
    begin = time.process_time()
    report = gmlake.report_of(trace)
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


def test_many_blocks_at_the_peak_are_counted_and_put_together() -> None:
    requests = np.zeros(20_000, REQUEST)
    requests["kind"] = Kind.ALLOC
    requests["id"] = np.arange(20_000)
    requests["size_bytes"] = 512 * (1 + np.arange(20_000) % 6000)
    report = gmlake.report_of(gmlake.Trace(requests))
    blocks = figure(report, Blocks)
    assert len(blocks.rows) <= MOST
    assert sum(row.count for row in blocks.rows) == 20_000
    assert sum(row.size_bytes for row in blocks.rows) == blocks.total_bytes
    assert "smallest" in blocks.note


def test_replays_have_figures() -> None:
    with busy_lake() as lake:
        trace = lake.snapshot()[0].trace
    replayed = gmlake.replay(trace, "caching,stitch")
    drawn = figure(gmlake.report_of(replayed), Policies)
    assert drawn.names == ("caching", "stitch")
    assert drawn.reserved_bytes == tuple(r.peak_reserved_bytes for r in replayed.results)
    told = dict(gmlake.report_of(gmlake.replay(trace, "stitch", optimize_for=2, growth=MIB)).facts)
    assert (told["optimize_for"], told["growth"]) == ("memory", "1MiB")
    with pytest.raises(TypeError, match="int"):
        gmlake.report_of(3)  # type: ignore[arg-type]


def test_a_snapshot_is_a_sequence_of_its_devices(tmp_path: Path) -> None:
    data = snapshot([alloc(BASE, 1)])
    data["device_traces"] += [[], [alloc(BASE, 2)]]
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps(data, 4))
    seen = gmlake.Snapshot.load(path)
    assert [device.device for device in seen] == [0, 2]
    assert len(seen) == 2
    assert list(seen) == [seen[0], seen[2]]


def test_nothing_is_held_where_pytorch_was_not_served() -> None:
    seen = gmlake.snapshot()
    assert list(seen) == []
    assert "no memory" in str(gmlake.memory_summary())
    with pytest.raises(ValueError, match="device 0"):
        gmlake.snapshot(0)
    assert seen.report().figures == ()


def test_the_table_shows_what_is_held_and_the_html_escapes_it() -> None:
    with busy_lake() as lake:
        seen = lake.snapshot()
        stats = lake.stats()
    text = str(seen)
    assert gmlake.format_size(stats["live_bytes"]) in text
    assert gmlake.format_size(stats["peak_reserved_bytes"]) in text
    assert "fragmentation" in text
    assert (seen[0].spans["kind"] == SpanKind.VIEW).any()
    sizes = seen[0].views["size_bytes"]
    assert f" {len(sizes)}, {gmlake.format_size(int(sizes.sum()))} in all" in text
    with busy_lake("caching") as lake:
        assert "stitched" not in str(lake.snapshot())
    assert "<script>alert" not in gmlake.Snapshot(name="<script>alert")._repr_html_()
