"""Every public function that takes a recording takes each form of it, and says the same."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake import TraceError
from gmlake.snapshots import report_of
from gmlake.snapshots.beside import KEY, VERSION
from recording import BASE, MIB, alloc, free, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ASKED: dict[str, Callable[[Any], Any]] = {
    "replay": lambda one: [
        (each.trace, each.peak_reserved_bytes)
        for each in gmlake.replay(one, "stitch", "1GiB").results
    ],
    "refusals": lambda one: sorted(gmlake.replay(one, "stitch", "1GiB").refusals),
    "fit": lambda one: [need.smallest_bytes for need in gmlake.fit(one, policies="stitch").needs],
    "plan": lambda one: [each.peak_bytes for each in gmlake.plan(one).results],
    "query": lambda one: gmlake.query(one).to_dict()["answers"],
    "compare": lambda one: gmlake.compare(one, one, ("start", "end")).to_dict()["comparisons"],
    "report_of": lambda one: len(report_of(one).figures),
}


def document() -> dict[str, Any]:
    """Two devices, each of which refused a request."""
    refused = {"action": "oom", "size": 90 * MIB, "device_free": MIB, "stream": 0, "time_us": 9}
    events = [alloc(BASE, 3 * MIB), alloc(BASE + 8 * MIB, 5 * MIB), free(BASE, 3 * MIB), refused]
    made = snapshot(events)
    made["device_traces"] = [events, events[:2] + events[3:]]
    return made


@pytest.mark.parametrize("name", ASKED)
def test_each_form_of_a_recording_gives_the_same_answer(name: str, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.write_bytes(pickle.dumps(document(), protocol=4))
    seen = gmlake.load(document())
    forms = [str(path), path, document(), seen, SimpleNamespace(snapshot=seen)]
    answers = [ASKED[name](form) for form in forms]
    assert all(answer == answers[0] for answer in answers)
    if name == "refusals":
        assert answers[0] == ["recording:0", "recording:1"]


@pytest.mark.parametrize("name", ASKED)
def test_anything_else_is_a_type_error(name: str) -> None:
    with pytest.raises(TypeError, match="expected a recording"):
        ASKED[name](7)


def test_a_device_of_gmlakes_part_is_told_once_and_by_this_version() -> None:
    def load(version: int, *devices: dict[str, Any]) -> gmlake.Snapshot:
        return gmlake.load(snapshot([]) | {KEY: {"version": version, "devices": list(devices)}})

    lake = {"device": 3, "counters": {"reserved_bytes": 7}}
    assert load(VERSION, lake)[3].counters == {"reserved_bytes": 7}
    with pytest.raises(TraceError, match="device 3 twice"):
        load(VERSION, lake, lake)
    with pytest.raises(TraceError, match="by another version of gmlake"):
        load(VERSION + 1, lake)
