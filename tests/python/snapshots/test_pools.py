"""Private pools in recordings: which events belong to which, as told or inferred."""

from __future__ import annotations

import copy
import pickle
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake import Trace, TraceError, _core
from gmlake.pictures import address_map
from gmlake.pictures.figures import AddressMap, Blocks, Moments
from gmlake.snapshots.entries import EventTable
from gmlake.snapshots.opening import read_recording
from gmlake.snapshots.pool_names import private_pools
from gmlake.snapshots.sites import OwnLines
from gmlake.trace import Kind
from gmlake.trace.layout import MAX_POOLS
from recording import BASE, FAR, MIB, alloc, block, event, figure, free, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

needs_bokeh = pytest.mark.skipif(
    find_spec("bokeh") is None, reason="Bokeh is not installed: pip install 'gmlake[view]'"
)

GRAPH = (1, 0)
MEM_POOL = (0, 7)


def held(address: int, size: int, pool: tuple[int, int], **more: Any) -> dict[str, Any]:
    blocks = [block(address, MIB, MIB), block(address + MIB, size - MIB)]
    return segment(address, size, blocks, segment_pool_id=pool, **more)


def as_object(document: Any) -> Any:
    return document


def as_table(document: Any) -> Any:
    """The same as read from a file, with a table of its events."""
    document = {**document, "device_traces": [[*document["device_traces"][0], *_PADDING]]}
    found: Any = read_recording(pickle.dumps(document, protocol=4))
    assert isinstance(found["device_traces"][0], EventTable)
    return found


_PADDING = [event("snapshot", 0, 0) for _ in range(100)]


def pools_of(trace: Trace, *kinds: Kind) -> list[int]:
    """The pool of each event of these kinds, allocations by default."""
    return [int(row["pool"]) for row in trace.requests if row["kind"] in (kinds or (Kind.ALLOC,))]


# ---- inferred


def test_memory_of_a_pool_at_the_end_is_its_from_the_allocation_of_its_segment_on() -> None:
    events = [
        event("segment_alloc", BASE, 20 * MIB),
        alloc(BASE, 3 * MIB),
        free(BASE, 3 * MIB),
        event("segment_free", BASE, 20 * MIB),
        event("segment_alloc", BASE, 20 * MIB),
        alloc(BASE, 2 * MIB),
        free(BASE, 2 * MIB),
        alloc(BASE, MIB),
        alloc(BASE + 64 * MIB, MIB),
    ]
    parts = [held(BASE, 20 * MIB, GRAPH), held(BASE + 64 * MIB, 2 * MIB, (0, 0))]
    trace = Trace.from_snapshot(snapshot(events, parts))
    assert trace.pools == (GRAPH,)
    assert pools_of(trace) == [0, 1, 1, 0]
    assert pools_of(trace, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE) == [0, 0, 1]
    assert pools_of(trace, Kind.FREE) == [0, 0]
    assert trace.event_pools.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]


def test_an_expandable_segment_is_of_its_pool_between_its_parts_too() -> None:
    events = [
        event("segment_map", FAR, 60 * MIB),
        alloc(FAR + 30 * MIB, MIB),
        free(FAR + 30 * MIB, MIB),
        event("segment_unmap", FAR + 20 * MIB, 20 * MIB),
        alloc(FAR, MIB),
        alloc(FAR + 40 * MIB, MIB),
        alloc(FAR + 80 * MIB, MIB),
    ]
    parts = [
        held(FAR, 20 * MIB, GRAPH, is_expandable=True),
        held(FAR + 40 * MIB, 20 * MIB, GRAPH, is_expandable=True),
        held(FAR + 80 * MIB, 20 * MIB, (0, 0), is_expandable=True),
    ]
    trace = Trace.from_snapshot(snapshot(events, parts))
    assert pools_of(trace) == [1, 1, 1, 0]


def test_an_expandable_segment_is_of_its_pool_from_its_first_part_on() -> None:
    events = [
        event("segment_map", FAR, 20 * MIB),
        alloc(FAR, MIB),
        free(FAR, MIB),
        event("segment_unmap", FAR, 20 * MIB),
        event("segment_map", FAR, 20 * MIB),
        event("segment_map", FAR + 20 * MIB, 20 * MIB),
        event("segment_unmap", FAR, 20 * MIB),
        event("segment_map", FAR, 20 * MIB),
        alloc(FAR, MIB),
    ]
    parts = [held(FAR, 40 * MIB, GRAPH, is_expandable=True)]
    trace = Trace.from_snapshot(snapshot(events, parts))
    assert pools_of(trace) == [0, 1]
    assert pools_of(trace, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE) == [0, 0, 1, 1, 1, 1]


def test_blocks_from_before_the_recording_are_of_their_segments_pool() -> None:
    parts = [held(BASE, 20 * MIB, (0, 0)), held(BASE + 64 * MIB, 20 * MIB, MEM_POOL)]
    trace = Trace.from_snapshot(snapshot([alloc(BASE + 66 * MIB, MIB)], parts))
    assert trace.start_blocks["address"].tolist() == [BASE, BASE + 64 * MIB]
    assert trace.start_pools.tolist() == [0, 1]
    assert trace.replay_requests()["pool"].tolist() == [0, 1, 1]


def test_a_recording_without_pools_is_as_ever(recorded_trace: Path) -> None:
    trace = gmlake.load_trace(recorded_trace)
    assert trace.pools == ()
    assert not trace.requests["pool"].any()
    assert trace.pooled_live_bytes == 0
    assert "pool_id" not in str(trace.to_snapshot()["device_traces"])


# ---- named


def named() -> dict[str, Any]:
    """Two pools, one of which is gone at the end."""
    events = [
        event("segment_alloc", BASE, 20 * MIB, pool_id=MEM_POOL),
        alloc(BASE, 3 * MIB, pool_id=MEM_POOL),
        free(BASE, 3 * MIB, pool_id=MEM_POOL),
        event("segment_alloc", BASE + 64 * MIB, 20 * MIB, pool_id=GRAPH),
        alloc(BASE + 64 * MIB, MIB, pool_id=GRAPH),
        event("segment_alloc", BASE + 96 * MIB, 20 * MIB, pool_id=(0, 0)),
        alloc(BASE + 96 * MIB, MIB, pool_id=(0, 0)),
        {"action": "oom", "size": 5, "device_free": 7, "stream": 0, "pool_id": GRAPH},
        event("segment_free", BASE, 20 * MIB, pool_id=MEM_POOL),
    ]
    parts = [held(BASE + 64 * MIB, 20 * MIB, GRAPH), held(BASE + 96 * MIB, 20 * MIB, (0, 0))]
    return snapshot(events, parts)


@pytest.mark.parametrize("read", [as_object, as_table])
def test_events_that_name_their_pool_are_believed(read: Any) -> None:
    trace = Trace.from_snapshot(read(named()))
    assert set(trace.pools) == {MEM_POOL, GRAPH}
    ids = [(0, 0), *trace.pools]
    found = [ids[number] for number in trace.event_pools.tolist()]
    expected = [*[MEM_POOL] * 3, *[GRAPH] * 2, (0, 0), (0, 0), GRAPH, MEM_POOL]
    assert found == expected


def test_the_memory_of_a_pool_that_ended_is_released_to_the_device() -> None:
    trace = Trace.from_snapshot(named())
    trims = [row for row in trace.replay_requests() if row["kind"] == Kind.TRIM]
    assert [trace.pools[row["pool"] - 1] for row in trims] == [MEM_POOL]


def test_segments_from_before_that_an_event_gives_to_a_pool() -> None:
    events = [
        free(BASE, MIB, pool_id=GRAPH),
        event("segment_free", BASE, 20 * MIB, pool_id=GRAPH),
    ]
    trace = Trace.from_snapshot(snapshot(events))
    assert trace.start_segments[["pool_owner", "pool_number"]].tolist() == [GRAPH]
    assert trace.start_pools.tolist() == [1]


@pytest.mark.parametrize("read", [as_object, as_table])
@pytest.mark.parametrize("pool", [None, 5, (1,), (1, 2, 3), ("a", 0), (-1, 0), [[], 0]])
def test_what_is_no_pool_is_one_line(pool: Any, read: Any) -> None:
    document = snapshot([alloc(BASE, MIB), alloc(BASE + MIB, MIB, pool_id=pool)])
    with pytest.raises(TraceError, match=r"^event 1: .*'pool_id'[^\n]*$"):
        Trace.from_snapshot(read(document))


def test_more_pools_than_anyone_has_are_one_line() -> None:
    events = [alloc(BASE + 512 * n, 512, pool_id=(0, n + 1)) for n in range(MAX_POOLS + 1)]
    with pytest.raises(TraceError, match=rf"names more than {MAX_POOLS} private pools$"):
        Trace.from_snapshot(snapshot(events))


# ---- named by an annotation


def noted(runs: Any, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """A recording with gmlake's annotation, and no pools in its events."""
    document = copy.deepcopy(named() if document is None else document)
    for entry in document["device_traces"][0]:
        entry.pop("pool_id", None)
    note = {"device": 0, "time_us": 1, "name": "gmlake", "stage": "END", "gmlake_pools": runs}
    return {**document, "external_annotations": [note]}


@pytest.mark.parametrize("read", [as_object, as_table])
def test_an_annotation_tells_the_pools_of_events_also_of_one_that_is_gone(read: Any) -> None:
    told = noted("3 0 7 2 1 0 2 0 0 1 1 0 1 0 7")
    assert Trace.from_snapshot(read(told)) == Trace.from_snapshot(read(named()))
    assert Trace.from_snapshot(read(told)).pools == (MEM_POOL, GRAPH)


@pytest.mark.parametrize("read", [as_object, as_table])
def test_an_annotation_counts_events_that_are_no_memory(read: Any) -> None:
    events = [
        event("snapshot", 0, 0),
        event("segment_map", BASE, 20 * MIB),
        event("snapshot", 0, 0),
        alloc(BASE, MIB),
        alloc(BASE + MIB, MIB),
        free(BASE + MIB, MIB),
    ]
    document = noted("1 0 0 1 1 0 1 0 0 1 1 0 2 0 7", snapshot(events))
    trace = Trace.from_snapshot(read(document))
    found = [[(0, 0), *trace.pools][number] for number in trace.event_pools.tolist()]
    assert found == [GRAPH, GRAPH, MEM_POOL, MEM_POOL]


@pytest.mark.parametrize("read", [as_object, as_table])
def test_what_an_event_names_itself_precedes_an_annotation(read: Any) -> None:
    document = noted("9 1 0")
    document["device_traces"][0][1]["pool_id"] = MEM_POOL
    trace = Trace.from_snapshot(read(document))
    ids = [(0, 0), *trace.pools]
    found = [ids[number] for number in trace.event_pools.tolist()]
    assert found == [GRAPH, *[MEM_POOL] * 2, *[GRAPH] * 6]


def test_pools_of_events_behind_the_annotated_ones_are_inferred() -> None:
    document = noted("3 0 7 2 1 0")
    document["device_traces"][0].append(alloc(BASE + 65 * MIB, MIB))
    trace = Trace.from_snapshot(document)
    assert [trace.pools[pool - 1] if pool else None for pool in pools_of(trace)] == [
        *(MEM_POOL, GRAPH, None, GRAPH)
    ]


def test_an_annotation_of_events_that_were_cut_off_is_left_alone() -> None:
    whole = noted("3 0 7 2 1 0 2 0 0 1 1 0 1 0 7")
    cut = copy.deepcopy(whole)
    del cut["device_traces"][0][:2]
    assert Trace.from_snapshot(cut) == Trace.from_snapshot({**cut, "external_annotations": []})


@pytest.mark.parametrize(
    "runs",
    [
        *(None, 5, "", "1 2", "1 2 3 4", "a b c", "-1 0 0", "1 0 \u0667", "0 1 0"),
        *(f"1 {1 << 64} 0", "9" * 21 + " 0 0", "9" * 5000 + " 0 0", ["1", "0", "7"]),
    ],
)
def test_an_annotation_of_other_form_is_one_line(runs: Any) -> None:
    with pytest.raises(TraceError, match=r"^'gmlake_pools' of an external annotation [^\n]*$"):
        Trace.from_snapshot(noted(runs))


def test_views_at_the_end_are_no_memory_from_before_the_recording() -> None:
    """Under gmlake no event maps a view, and the memory in it has no segment of its own."""
    events = [
        event("segment_map", BASE, 60 * MIB),
        alloc(FAR, 40 * MIB),
        event("segment_unmap", BASE, 10 * MIB),
    ]
    view = segment(FAR, 40 * MIB, [block(FAR, 40 * MIB, 40 * MIB)], is_expandable=True)
    rest = segment(BASE + 30 * MIB, 10 * MIB, [block(BASE + 30 * MIB, 10 * MIB)])
    trace = Trace.from_snapshot(snapshot(events, [view, rest]))
    assert not len(trace.start_segments)
    assert len(trace.final_segments) == 2
    assert gmlake.validate(trace).results[0].allocations == 1


POOLS = st.sampled_from([(0, 0), GRAPH, MEM_POOL, (5, 5)])


@given(st.data())
def test_pools_that_lie_are_replayed_and_compared(data: st.DataObject) -> None:
    """Events and segments may contradict each other: each request is served nevertheless."""
    document = copy.deepcopy(named())
    for entry in document["device_traces"][0]:
        entry.pop("pool_id")
        if data.draw(st.booleans()):
            entry["pool_id"] = data.draw(POOLS)
    for part in document["segments"]:
        part["segment_pool_id"] = data.draw(POOLS)
        part["is_expandable"] = data.draw(st.booleans())
    trace = Trace.from_snapshot(document)
    trace.check()
    report = gmlake.replay(trace)
    assert {result.allocations for result in report.results} == {trace.allocations}
    assert all(result.first_refused is None for result in report.results)
    assert gmlake.validate(trace).results[0].allocations == trace.allocations


# ---- kept


@pytest.mark.parametrize("suffix", [".gmtrace", ".pickle", ".json"])
def test_pools_survive_every_format(suffix: str, tmp_path: Path) -> None:
    trace = Trace.from_snapshot(named())
    path = tmp_path / f"x{suffix}"
    if suffix == ".gmtrace":
        trace.save(path)
        again = gmlake.load_trace(path)
        assert again == trace
    else:
        path.write_bytes(pickle.dumps(trace.to_snapshot(), protocol=4))
        again = gmlake.load_trace(path)
    ids, others = [(0, 0), *trace.pools], [(0, 0), *again.pools]
    assert [ids[n] for n in trace.event_pools] == [others[n] for n in again.event_pools]


def test_a_lakes_own_recording_knows_pools_that_it_has() -> None:
    with gmlake.Lake("sim", "caching", "1GiB") as lake:
        lake.keep_history(100)
        run = _core.Replay(lake, 3)
        requests = Trace.from_snapshot(named()).requests[:5]
        run.run(requests.view("u1"))
        lake.allocate(5 * MIB)
        trace = lake.snapshot()[0].trace
    assert trace.pools == ((0, 1), (0, 2))
    assert pools_of(trace) == [1, 2, 0]


# ---- seen


TREES = {"name": "run", "filename": "/env/torch/_inductor/cudagraph_trees.py", "line": 3}
GRAPHS = {"name": "make_graphed_callables", "filename": r"C:\env\torch\cuda\graphs.py", "line": 3}
OWN = {"name": "step", "filename": "/home/me/mytorch/cuda/graphs.py", "line": 3}


@pytest.mark.parametrize(
    ("pool", "stream", "frames", "told"),
    [
        ((4, 0), 9, [OWN], ("graph pool (4, 0)", True)),
        ((0, 2), 0, [OWN], ("MemPool (0, 2)", True)),
        ((0, 2), 9, [OWN], ("MemPool or graph pool (0, 2)", False)),
        ((0, 2), 9, [TREES, OWN], ("graph pool (0, 2), most likely", False)),
        ((0, 2), 9, [OWN, GRAPHS], ("graph pool (0, 2), most likely", False)),
        ((0, 2), 0, [OWN, GRAPHS], ("MemPool or graph pool (0, 2)", False)),
    ],
)
def test_a_pool_is_named_by_its_kind(
    tmp_path: Path, pool: Any, stream: int, frames: list[Any], told: tuple[str, bool]
) -> None:
    outside = [alloc(FAR, MIB, frames=[TREES], pool_id=(0, 0)), alloc(FAR << 1, MIB, stream=0)]
    for wanted in (pool, (0, 9)):  # what is allocated in one tells nothing of another
        events = [alloc(BASE, 3 * MIB, pool_id=pool, stream=stream, frames=frames), *outside]
        parts = [held(BASE, 20 * MIB, pool, stream=stream)]
        parts.append(held(BASE + 64 * MIB, 20 * MIB, (0, 9), stream=7))
        seen = load(tmp_path, snapshot(events, parts))
        found = {one.id: one for one in private_pools(seen[0], OwnLines(seen.sites))}[wanted]
        expected = told if wanted == pool else ("MemPool or graph pool (0, 9)", False)
        assert (found.name, found.is_sure, found.at_end) == (*expected, True)


def test_a_pool_of_idle_segments_is_told_by_their_stream(tmp_path: Path) -> None:
    idle = segment(BASE, 20 * MIB, [block(BASE, 20 * MIB)], segment_pool_id=MEM_POOL)
    seen = load(tmp_path, snapshot([], [idle]))
    (found,) = private_pools(seen[0], OwnLines({}))
    assert found.name == "MemPool (0, 7)"


def test_a_pool_that_is_gone_at_the_end_is_said_to_be(tmp_path: Path) -> None:
    seen = load(tmp_path, named())
    said = [one.name for one in private_pools(seen[0], OwnLines({}))]
    assert said == ["MemPool (0, 7), gone at the end", "graph pool (1, 0)"]
    events = [event("segment_alloc", BASE, MIB, pool_id=GRAPH), alloc(BASE, MIB, pool_id=GRAPH)]
    events += [free(BASE, MIB), event("segment_free", BASE, MIB, pool_id=GRAPH)]
    (found,) = private_pools(load(tmp_path, snapshot(events))[0], OwnLines({}))
    assert found.at_end is False
    unknown = load(tmp_path, snapshot([alloc(BASE, MIB, pool_id=MEM_POOL)]))
    (found,) = private_pools(unknown[0], OwnLines({}))
    assert (found.name, found.at_end) == ("MemPool (0, 7)", None)


def test_a_page_says_what_private_pools_hold_the_largest_first(tmp_path: Path) -> None:
    sizes = (30, 50, 20, 70, 10, 40)
    events: list[Any] = []
    parts = [held(FAR, 90 * MIB, (0, 0))]
    for number, size in enumerate(sizes, 1):
        at = BASE + number * (1 << 30)
        events += [event("segment_alloc", at, size * MIB, pool_id=(number, 0))]
        events += [alloc(at, MIB, pool_id=(number, 0))]
        parts.append(held(at, size * MIB, (number, 0)))
    moments = figure(load(tmp_path, snapshot(events, parts)).report(), Moments)
    says = {moment.at: moment.says for moment in moments.moments}
    assert says[11][-2] == (
        "Private pools hold 220 MiB, 214 MiB of it free: 70.0 MiB in graph pool (4, 0); 50.0 MiB "
        "in graph pool (2, 0); 40.0 MiB in graph pool (6, 0); 30.0 MiB in graph pool (1, 0); "
        "30.0 MiB in 2 more."
    )
    assert "1.00 MiB allocated, in graph pool (1, 0)." in says[1][0]
    assert not any("rivate pools" in said for said in says[-1])


def test_the_map_and_the_table_name_the_pool_of_each_piece(tmp_path: Path) -> None:
    made = load(tmp_path, named()).report()
    pieces = [piece for row in figure(made, AddressMap).rows for piece in row]
    pools = {(piece.kind, piece.address): piece.pool for piece in pieces}
    gone, graph = "MemPool (0, 7), gone at the end", "graph pool (1, 0)"
    at = BASE + 64 * MIB
    assert pools[("held", BASE)] == pools[("used", BASE)] == pools[("free", BASE)] == gone
    assert pools[("held", at)] == pools[("used", at)] == pools[("free", at + MIB)] == graph
    assert not {pool for (_, address), pool in pools.items() if address >= BASE + 96 * MIB} - {""}
    rows = {(row.size_bytes, row.pool) for row in figure(made, Blocks).rows if row.count}
    assert rows == {(MIB, graph), (MIB, "")}  # of one place and size


@needs_bokeh
def test_free_memory_of_pools_has_a_key_of_its_own(tmp_path: Path) -> None:
    def labels(document: dict[str, Any]) -> list[str]:
        drawn = address_map.draw(figure(load(tmp_path, document).report(), AddressMap))
        return [key.label for key in drawn.keys if "free" in key.label]

    assert set(labels(named())) == {"free in private pools", "free"}
    at = BASE + 64 * MIB
    events = [event("segment_alloc", at, 20 * MIB), alloc(at, MIB)]
    assert labels(snapshot(events, [held(at, 20 * MIB, GRAPH)])) == ["free in graph pool (1, 0)"]


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        (GRAPH, "large enough; why it was not taken"),
        ((0, 0), "large enough, but in graph pool (1, 0)"),
        (MEM_POOL, "large enough, but in graph pool (1, 0)"),
    ],
)
def test_a_page_says_that_free_memory_was_of_another_pool(pool: Any, said: str) -> None:
    events = [
        event("segment_alloc", BASE, 100 * MIB, pool_id=GRAPH),
        alloc(BASE, 60 * MIB, pool_id=GRAPH),
        alloc(BASE + 60 * MIB, 40 * MIB, pool_id=GRAPH),
        free(BASE, 60 * MIB, pool_id=GRAPH),
        {**event("oom", 0, 50 * MIB), "device_free": MIB, "pool_id": pool},
    ]
    report = gmlake.report_of(Trace.from_snapshot(snapshot(events)))
    moments = figure(report, Moments)
    assert said in moments.moments[moments.shown].says[1]


def test_a_page_says_that_free_memory_was_outside_of_the_pool() -> None:
    events = [
        event("segment_alloc", BASE, 100 * MIB),
        alloc(BASE, 40 * MIB),
        {**event("oom", 0, 50 * MIB), "device_free": MIB, "pool_id": GRAPH},
    ]
    moments = figure(gmlake.report_of(Trace.from_snapshot(snapshot(events))), Moments)
    says = moments.moments[moments.shown].says
    assert says[0].startswith("Refused: 50.0 MiB, in graph pool (1, 0)")
    assert says[1].startswith("A piece was large enough, but outside of graph pool (1, 0)")
