"""Recordings at the edges of what each rule takes: the first event, the last byte, exactly full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import gmlake
from gmlake.pictures.figures import Moments
from gmlake.snapshots.files import to_plain
from gmlake.snapshots.whole import of_one_trace
from recording import BASE, MIB, alloc, block, event, figure, free, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path


def test_what_has_no_address_lies_in_blocks_of_whole_units() -> None:
    (seen,) = gmlake.load(snapshot([alloc(BASE + at * MIB, 512 + at) for at in range(3)]))
    trace = seen.trace
    requests = trace.requests.copy()
    requests["address"] = 0
    written = to_plain(of_one_trace(replace(trace, requests=requests)))["segments"]
    assert [one["total_size"] for one in written] == [512, 1024, 1024]
    assert [one["blocks"][0]["size"] for one in written] == [512, 1024, 1024]
    assert [one["requested_size"] for one in written] == [512, 513, 514]


def test_a_part_that_went_without_an_event_was_held_before(tmp_path: Path) -> None:
    events = [
        event("segment_map", BASE + at * MIB, size * MIB)
        for at, size in ((0, 10), (10, 30), (60, 10))
    ]
    parts = [
        segment(
            BASE + at * MIB, size * MIB, [block(BASE + at * MIB, size * MIB)], is_expandable=True
        )
        for at, size in ((0, 10), (20, 20), (60, 10))
    ]
    events.insert(1, alloc(BASE, 8 * MIB))
    events.append(free(BASE, 8 * MIB))
    found = figure(load(tmp_path, snapshot(events, parts)).report(), Moments)
    held = [re.findall(r", held ([\d.]+) MiB", one.says[0]) for one in found.moments[1:]]
    assert held == [["10.0"], ["10.0"], ["40.0"], ["40.0"], ["40.0"]]
