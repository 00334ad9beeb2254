"""Names that a program gives its blocks: metadata of requests, and annotations of PyTorch 2.14."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.pictures.figures import Blocks, Timeline
from gmlake.snapshots.comparing import compare
from gmlake.snapshots.entries import EventTable
from gmlake.snapshots.opening import load_document
from recording import BASE, MIB, alloc, block, event, figure, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = [{"name": "step", "filename": "/home/me/train.py", "line": 33}]


def annotate(addr: int, text: object, size: int = 0) -> dict[str, Any]:
    return event("annotate", addr, size, user_metadata=text, frames=[])


def rows_of(seen: gmlake.Snapshot) -> dict[int, tuple[str, str]]:
    blocks = figure(seen.report(), Blocks)
    return {row.size_bytes // MIB: (row.site, row.category) for row in blocks.rows}


def test_a_block_from_before_the_recording_is_named(tmp_path: Path) -> None:
    part = segment(BASE, 20 * MIB, [block(BASE, 8 * MIB, 8 * MIB), block(BASE + 8 * MIB, 12 * MIB)])
    seen = load(tmp_path, snapshot([annotate(BASE, "weights"), alloc(BASE + 8 * MIB, MIB)], [part]))
    assert rows_of(seen)[8][0] == "weights"
    assert {int(site) for site in seen[0].blocks["site"]} & set(seen.sites)
    (one,) = compare(seen, seen, ("start", "end")).comparisons
    assert {row.key: row.change_bytes for row in one.changes}["weights"] == 0


def test_names_of_categories_decide_them(tmp_path: Path) -> None:
    events = [
        alloc(BASE, 8 * MIB, frames=FRAMES),
        alloc(BASE + 64 * MIB, 4 * MIB, frames=FRAMES, user_metadata="Optimizer_State"),
        annotate(BASE, "activation"),
        alloc(BASE + 128 * MIB, 2 * MIB, frames=FRAMES),
    ]
    seen = load(tmp_path, snapshot(events))
    found = rows_of(seen)
    assert [found[size][1] for size in (8, 4, 2)] == ["activation", "optimizer state", "unknown"]
    timeline = figure(seen.report(), Timeline)
    assert timeline.live["activation"].max() == 8 * MIB
    assert "categories are those that the program named" in timeline.note


@pytest.mark.parametrize("wrong", [None, 7, "", ["kv cache"]])
def test_an_annotation_without_a_text_says_nothing(tmp_path: Path, wrong: object) -> None:
    events = [alloc(BASE, 8 * MIB, frames=FRAMES), annotate(BASE, wrong)]
    assert rows_of(load(tmp_path, snapshot(events)))[8][0] == "train.py:33 in step()"


def test_a_large_recording_is_read_the_same_as_a_table(tmp_path: Path) -> None:
    events = []
    for number in range(300):
        place = BASE + 64 * MIB * number
        events += [alloc(place, 8 * MIB + 512 * number, frames=FRAMES, time_us=number)]
        events += [annotate(place, f"tensor {number % 3}", 8 * MIB)]
    path = tmp_path / "large.pickle"
    path.write_bytes(pickle.dumps(snapshot(events), 4))
    document: Any = load_document(path)[0]
    assert isinstance(document["device_traces"][0], EventTable)
    (tmp_path / "large.json").write_text(json.dumps(snapshot(events)))
    found = [gmlake.load(tmp_path / f"large.{end}") for end in ("pickle", "json")]
    assert rows_of(found[0]) == rows_of(found[1])
    names = [str(found[0].sites[int(site)]) for site in found[0][0].lives.site]
    assert names == [f"tensor {number % 3}" for number in range(300)]
