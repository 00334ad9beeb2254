"""Pages without a browser: what is in them, and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmlake.pictures.address_map import Finder, Line
from gmlake.pictures.figures import (
    Moments,
)
from recording import BASE, MIB, alloc, block, event, load, segment

if TYPE_CHECKING:
    from pathlib import Path


def three_devices() -> dict[str, Any]:
    """Device 0 holds 10 MiB; device 1 is fuller; device 2 holds least, and was refused twice."""
    traces = [
        [event("segment_alloc", at, size * MIB), alloc(at, size * MIB)]
        for at, size in ((BASE, 10), (BASE + (1 << 36), 30), (BASE + (2 << 36), 5))
    ]
    traces[2] += 2 * [{**event("oom", 0, 500 * MIB), "device_free": MIB}]
    segments = []
    for device, (held, *_) in enumerate(traces):
        at, size = held["addr"], held["size"]
        segments.append(segment(at, size, [block(at, size, size)], device=device))
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


def test_the_device_that_was_refused_comes_first_then_the_fullest(tmp_path: Path) -> None:
    made = load(tmp_path, three_devices()).report()
    told = [one for one in made.figures if isinstance(one, Moments)]
    assert [one.title.partition(":")[0] for one in told] == ["Device 2", "Device 1", "Device 0"]
    assert [name for name, _ in made.facts if "peak" in name] == ["Device 2: live at the peak"]
    assert {name.partition(":")[0] for name, _ in made.facts} == {"Device 2"}
    assert [(one.name, one.says, one.group, one.is_refused) for one in made.summaries] == [
        ("Device 2", "5.00 MiB live at the peak, 5.00 MiB held, 2 requests refused", 3, True),
        ("Device 1", "30.0 MiB live at the peak, 30.0 MiB held, nothing refused", 2, False),
        ("Device 0", "10.0 MiB live at the peak, 10.0 MiB held, nothing refused", 1, False),
    ]


def test_a_range_is_found_in_the_lines_that_it_crosses() -> None:
    finder = Finder([Line(1000, 1100, ()), Line(0, 100, ()), Line(100, 150, ())])
    found = [(1, 90, 0, 10), (2, 0, 10, 50), (0, 0, 910, 40)]
    assert list(finder.parts(90, 950)) == found
    assert list(finder.parts(200, 10)) == []
    assert list(finder.parts(5000, 10)) == []
    assert list(Finder([]).parts(0, 10)) == []
