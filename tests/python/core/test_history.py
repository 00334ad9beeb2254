"""Histories with sites and marks, spans with pieces, and published counters: the bindings."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gmlake import Lake, Snapshot, _core
from gmlake.pictures.figures import Timeline
from gmlake.snapshots.figures_of import reserved_behind
from gmlake.trace.layout import REQUEST, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
LAYOUT_BYTES = 232
MOST = 2**64 - 1


@pytest.fixture(autouse=True)
def _no_site() -> Iterator[None]:
    yield
    _core.set_site(0)


def test_events_carry_the_site_that_was_set() -> None:
    with Lake() as lake:
        lake.free(lake.allocate(MIB))
        lake.keep_history(5)
        _core.set_site(MOST)
        block = lake.allocate(MIB)
        _core.set_site(3)
        lake.free(block)
        lake.note_mark(8)
        events, sites, total = lake.history_sites()
        assert (events, total) == lake.history()
    assert np.frombuffer(sites, np.uint64).tolist() == [MOST, 3, 3, 3]
    assert total == 4
    noted = np.frombuffer(events, REQUEST)
    kinds = [Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE, Kind.MARK]
    assert noted["kind"].tolist() == kinds
    assert noted["id"][3] == 8


def test_only_the_youngest_are_kept_with_their_sites() -> None:
    with Lake() as lake:
        lake.free(lake.allocate(5 * 512))
        lake.keep_history(4)
        for site in range(1, 6):
            _core.set_site(site)
            lake.free(lake.allocate(site * 512))
        events, sites, total = lake.history_sites()
    assert total == 15
    noted = np.frombuffer(events, REQUEST)
    assert (noted["size_bytes"] == 512 * np.frombuffer(sites, np.uint64)).all()
    assert len(noted) == 4


def test_events_tell_what_was_reserved_when() -> None:
    with Lake(capacity="1GiB") as lake:
        kept = lake.allocate(30 * MIB)
        lake.keep_history(100)
        blocks = [lake.allocate(20 * MIB) for _ in range(3)]
        for block in blocks[1:]:
            lake.free(block)
        del block
        lake.trim()
        last = lake.allocate(5 * MIB)
        seen = lake.snapshot()[0]
        reserved_bytes = lake.stats()["reserved_bytes"]
    line = reserved_behind(seen)
    assert line is not None
    kinds = seen.events["kind"].tolist()
    assert kinds[:2] == [Kind.SEGMENT_ALLOC, Kind.ALLOC]
    assert line[0] == 50 * MIB
    assert line.max() == 90 * MIB
    assert line[kinds.index(Kind.TRIM)] == 50 * MIB
    assert line[-1] == reserved_bytes == 56 * MIB
    timeline = next(one for one in Snapshot((seen,)).report().figures if isinstance(one, Timeline))
    assert timeline.reserved is not None
    assert timeline.reserved.max() == 90 * MIB
    assert kept.address
    assert last.address


def test_times_agree_with_the_clock_and_never_go_back() -> None:
    with Lake() as lake:
        lake.keep_history(64)
        before, behind = [], []
        for number in range(100):
            before.append(time.time_ns())
            lake.note_mark(number)
            behind.append(time.time_ns())
            if number % 30 == 29:
                lake.history()  # those so far have their times from here on
                time.sleep(0.01)
        events, _ = lake.history()
    times = np.frombuffer(events, REQUEST)["time_ns"].astype(np.int64)
    assert (np.diff(times) >= 0).all()
    assert (times >= np.array(before[-64:]) - 1_000_000).all()
    assert (times <= np.array(behind[-64:]) + 1_000_000).all()


def test_without_a_history_there_is_nothing() -> None:
    with Lake() as lake:
        lake.note_mark(1)
        assert lake.history_sites() == (b"", b"", 0)
    with pytest.raises(ValueError, match="closed"):
        lake.history_sites()
    with pytest.raises(ValueError, match="closed"):
        lake.note_mark(1)


def test_each_thread_has_its_own_site() -> None:
    _core.set_site(5)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(_core.site()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert _core.site() == 5


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_a_site_is_a_number_of_64_bits(wrong: int) -> None:
    with pytest.raises(ValueError, match="site must be from 0"):
        _core.set_site(wrong)
    with pytest.raises(TypeError):
        _core.set_site("here")  # type: ignore[arg-type]


def test_a_view_tells_its_pieces() -> None:
    with Lake(capacity="32MiB") as lake:
        blocks = [lake.allocate(4 * MIB) for _ in range(8)]
        bases = [int(block) for block in blocks[::2]]
        for block in blocks[::2]:
            lake.free(block)
        lake.allocate(16 * MIB)
        spans = lake.spans()
    (view,) = [span for span in spans if span["kind"] == "view"]
    assert view["is_view"]
    assert sorted(base for _, base, _ in view["pieces"]) == bases
    assert [at - view["address"] for at, _, _ in view["pieces"]] == [0, 4 * MIB, 8 * MIB, 12 * MIB]
    assert all(not span["pieces"] for span in spans if span["kind"] == "base")
    with Lake(policy="caching") as lake:
        lake.allocate(MIB)
        assert [span["kind"] for span in lake.spans()] == ["segment"]


def test_published_counters_are_in_a_file_of_this_user(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with Lake() as lake:
        lake.publish(path)
        assert path.stat().st_mode & 0o777 == 0o600
        before = path.read_bytes()
        lake.allocate(MIB)
        after = path.read_bytes()
        assert len(after) == LAYOUT_BYTES
        assert before.startswith(b"GMLCOUNT")
        assert before != after
        with pytest.raises(FileExistsError):
            lake.publish(str(path))
        lake.publish(None)
        assert not path.exists()
        lake.publish(os.fspath(path))
    assert not path.exists()


def test_what_cannot_be_published(tmp_path: Path) -> None:
    with Lake() as lake:
        for wrong in ("relative", ""):
            with pytest.raises(OSError, match="Invalid argument"):
                lake.publish(wrong)
        with pytest.raises(FileNotFoundError):
            lake.publish(tmp_path / "nowhere" / "lake")
        with pytest.raises(TypeError):
            lake.publish(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="closed"):
        lake.publish(tmp_path / "lake")
