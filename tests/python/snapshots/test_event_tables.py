"""Events of pickles as rows: what is read is the same as without them, whatever a file says."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from gmlake import TraceError
from gmlake.snapshots.entries import EventTable
from gmlake.snapshots.opening import read_pickle, read_recording
from gmlake.snapshots.reading import read_snapshot
from recording import BASE, MIB, alloc, block, event, free, segment, snapshot

FRAMES = [{"name": f"call{n}", "filename": "model.py", "line": n} for n in range(4)]
PATHS = [[FRAMES[0]], [FRAMES[0], FRAMES[1]], [FRAMES[2], FRAMES[3], FRAMES[0]], []]
PLACES = [BASE + n * MIB for n in range(6)]


def plainly(document: Any) -> Any:
    """The document with lists in the place of tables."""
    if type(document) is not dict or type(document.get("device_traces")) is not list:
        return document
    traces = [
        list(one) if isinstance(one, EventTable) else one for one in document["device_traces"]
    ]
    return {**document, "device_traces": traces}


def tables(document: Any) -> int:
    """How many devices have a table."""
    traces = document.get("device_traces", ()) if type(document) is dict else ()
    return sum(isinstance(one, EventTable) for one in traces)


def are_same(one: Any, other: Any, begun: set[tuple[int, int]]) -> bool:
    """Whether two documents are equal, where lists may be within themselves, too."""
    pair = id(one), id(other)
    if one is other or pair in begun:
        return True
    if type(one) is not type(other):
        return bool(one == other)
    if isinstance(one, dict):
        begun.add(pair)
        return one.keys() == other.keys() and all(are_same(one[k], other[k], begun) for k in one)
    if isinstance(one, (list, tuple)):
        begun.add(pair)
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(are_same(*two, begun) for two in pairs)
    return bool(one == other)


def outcome(data: bytes, read: Any) -> Any:
    """What a reader makes of a pickle: a value, or what it says against it."""
    try:
        return read(data)
    except TraceError as error:
        return str(error)


def check_same_document(data: bytes) -> Any:
    """Read with and without tables, and compare; the document with tables."""
    found, expected = outcome(data, read_recording), outcome(data, read_pickle)
    assert are_same(plainly(found), expected, set())
    return found


def check_same_traces(data: bytes) -> Any:
    """Compare what is understood of both documents; that of the tables."""
    found = outcome(data, lambda each: read_snapshot(read_recording(each), len(each)))
    assert found == outcome(data, lambda each: read_snapshot(read_pickle(each), len(each)))
    return found


# ---- recordings


def usual_events() -> list[dict[str, Any]]:
    """Everything that a recording of PyTorch has, in a sequence that makes sense."""
    one, two = PATHS[1], PATHS[2]
    return [
        event("segment_alloc", BASE, 20 * MIB, frames=one),
        free(BASE + 512, 512, frames=[]),
        alloc(BASE, MIB, frames=one, stream=7, time_us=5),
        event("free_requested", BASE + 8 * MIB, 1024, frames=two),
        alloc(BASE + MIB, 700, frames=list(two), user_metadata="layers.3"),
        event("snapshot", 0, 0, frames=[]),
        {"action": "oom", "size": 1 << 50, "device_free": 99, "stream": 0, "time_us": 7},
        event("free_requested", BASE, MIB, frames=one),
        free(BASE, MIB, frames=one, stream=7, time_us=9),
        alloc(BASE, 2 * MIB, frames=one, compile_context="N/A"),
        free(BASE + 8 * MIB, 1024),
        event("segment_free", BASE + 32 * MIB, 2 * MIB),
        alloc(BASE + 9 * MIB, MIB, site=3, category="gradient"),
    ]


def usual() -> dict[str, Any]:
    blocks = [
        block(BASE, 2 * MIB, 2 * MIB),
        block(BASE + 2 * MIB, 7 * MIB),
        block(BASE + 9 * MIB, MIB, MIB),
        block(BASE + 10 * MIB, 10 * MIB, 9 * MIB),
    ]
    return snapshot(usual_events(), [segment(BASE, 20 * MIB, blocks)])


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_recording_is_read_into_a_table(protocol: int) -> None:
    data = pickle.dumps(usual(), protocol)
    document: Any = read_recording(data)
    (table,) = document["device_traces"]
    assert isinstance(table, EventTable)
    assert len(table) == len(usual_events())
    assert list(table) == usual_events()
    assert plainly(document) == read_pickle(data)
    (trace,) = check_same_traces(data)
    assert len(trace.requests) == len(usual_events()) - 1  # all but the event of the snapshot
    assert len(trace.start_blocks) == 3


# ---- what no recording has


def odd_documents() -> dict[str, Any]:
    """Files in which a list of events, or a part of one, is more than that."""
    events, path = usual_events(), list(PATHS[1])
    other = usual_events()
    other[2]["frames"] = other[2]  # an event within itself
    nested: list[Any] = usual_events()
    nested.append(nested)
    own: dict[str, Any] = usual()
    own["device_traces"].append(own["device_traces"])
    whole: dict[str, Any] = usual()
    whole["device_traces"][0][3]["whole"] = whole
    return {
        "of two devices": {"segments": [], "device_traces": [events, events]},
        "of a segment": {"segments": [segment(BASE, MIB, events)], "device_traces": [events]},
        "as a call path": snapshot([alloc(BASE, 512, frames=events), *events]),
        "shared": {"segments": [], "device_traces": [events, list(events)]},
        "twice": snapshot([*events, events[2]]),
        "elsewhere": {"notes": usual_events(), "segments": []},
        "as segments": {"segments": usual_events(), "device_traces": [usual_events()]},
        "alone": usual_events(),
        "in a tuple": {"segments": [], "device_traces": (usual_events(),)},
        "a tuple": {"segments": [], "device_traces": [tuple(usual_events())]},
        "a dict": {"segments": [], "device_traces": {0: usual_events()}},
        "of many devices": {"segments": [], "device_traces": [[alloc(BASE, 1)]] * 3 + [[], events]},
        "more devices than are read": {
            "segments": [],
            "device_traces": [[alloc(BASE, number)] for number in range(1100)],
        },
        "within itself": snapshot(other),
        "a list within itself": snapshot(nested),
        "traces within themselves": own,
        "the whole in an event": whole,
        "a call path of thousands": snapshot([alloc(BASE, 512, frames=FRAMES * 1000)]),
        "a path of one list": snapshot([alloc(BASE, 1, frames=path), free(BASE, 1, frames=path)]),
        "keys that are numbers": {"segments": [], "device_traces": [[{1: 2, **alloc(BASE, 512)}]]},
        "many keys": snapshot([alloc(BASE, 512) | {f"key{n}": n for n in range(300)}]),
    }


@pytest.mark.parametrize("name", odd_documents())
def test_odd_documents_are_read_as_ever(name: str) -> None:
    data = pickle.dumps(odd_documents()[name], 4)
    found, expected = read_recording(data), pickle.loads(data)
    if name not in ("within itself", "a list within itself", "the whole in an event"):
        try:
            assert plainly(found) == expected
        except RecursionError:
            assert repr(found) == repr(expected)
    check_same_traces(data)


@st.composite
def recordings(draw: st.DrawFn) -> dict[str, Any]:
    """Events that may or may not make sense after each other, of up to three devices."""
    paths = [list(path) for path in PATHS]
    sizes = st.sampled_from([0, 1, 512, MIB, 3 * MIB, 1 << 48])
    one = st.fixed_dictionaries(
        {
            "action": st.sampled_from(
                ["alloc"] * 6
                + ["free_completed"] * 6
                + ["free_requested", "segment_alloc", "segment_free", "segment_map"]
                + ["snapshot", "oom", "workspace_snapshot"]
            ),
            "addr": st.sampled_from(PLACES),
            "size": sizes,
            "stream": st.sampled_from([0, 0, 7, 1 << 40]),
            "time_us": st.integers(0, 1 << 50),
        },
        optional={
            "frames": st.sampled_from(paths) | st.sampled_from(PATHS).map(list),
            "user_metadata": st.sampled_from(["", "layers.1", "layers.2"]).map(
                lambda text: "".join(list(text))
            ),
            "site": st.integers(0, 3),
            "category": st.sampled_from(["gradient", "parameter"]),
            "gmlake_added": st.booleans(),
        },
    )
    live = [block(PLACES[0], MIB, 700), block(PLACES[1], MIB, MIB), block(PLACES[2], 4 * MIB)]
    traces = draw(st.lists(st.lists(one, max_size=12), max_size=3))
    return {"segments": [segment(BASE, 6 * MIB, live)], "device_traces": traces}


@given(recordings(), st.integers(2, 5))
@settings(max_examples=300)
def test_any_events_are_read_as_ever(document: dict[str, Any], protocol: int) -> None:
    data = pickle.dumps(document, protocol)
    found = check_same_document(data)
    assert tables(found) == sum(map(bool, document["device_traces"]))
    check_same_traces(data)
