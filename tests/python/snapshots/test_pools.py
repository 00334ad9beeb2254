"""Private pools in recordings: which events belong to which, as told or inferred."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.pictures import address_map
from gmlake.pictures.figures import AddressMap, Blocks
from gmlake.snapshots.entries import EventTable
from gmlake.snapshots.files import to_plain
from gmlake.snapshots.opening import read_recording
from gmlake.snapshots.pool_names import private_pools
from gmlake.snapshots.sites import OwnLines
from gmlake.snapshots.whole import of_one_trace
from gmlake.trace import Kind, Trace
from recording import BASE, FAR, MIB, alloc, block, event, figure, free, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

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


def test_the_memory_of_a_pool_that_ended_is_released_to_the_device() -> None:
    trace = gmlake.load(named()).devices[0].trace
    trims = [row for row in trace.replay_requests() if row["kind"] == Kind.TRIM]
    assert [trace.pools[row["pool"] - 1] for row in trims] == [MEM_POOL]


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
    assert gmlake.load(read(told)).devices[0].trace == gmlake.load(read(named())).devices[0].trace
    assert gmlake.load(read(told)).devices[0].trace.pools == (MEM_POOL, GRAPH)


def test_pools_of_events_behind_the_annotated_ones_are_inferred() -> None:
    document = noted("3 0 7 2 1 0")
    document["device_traces"][0].append(alloc(BASE + 65 * MIB, MIB))
    trace = gmlake.load(document).devices[0].trace
    assert [trace.pools[pool - 1] if pool else None for pool in pools_of(trace)] == [
        *(MEM_POOL, GRAPH, None, GRAPH)
    ]


# ---- kept


@pytest.mark.parametrize("suffix", [".gmtrace", ".pickle", ".json"])
def test_pools_survive_every_format(suffix: str, tmp_path: Path) -> None:
    trace = gmlake.load(named()).devices[0].trace
    path = tmp_path / f"x{suffix}"
    if suffix == ".gmtrace":
        trace.save(path)
        again = gmlake.load(path).devices[0].trace
        assert again == trace
    else:
        path.write_bytes(pickle.dumps(to_plain(of_one_trace(trace)), protocol=4))
        again = gmlake.load(path).devices[0].trace
    ids, others = [(0, 0), *trace.pools], [(0, 0), *again.pools]
    assert [ids[n] for n in trace.event_pools] == [others[n] for n in again.event_pools]


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


def test_free_memory_of_pools_has_a_key_of_its_own(tmp_path: Path) -> None:
    def labels(document: dict[str, Any]) -> list[str]:
        drawn = address_map.draw(figure(load(tmp_path, document).report(), AddressMap))
        return [key.label for key in drawn.keys if "free" in key.label]

    assert set(labels(named())) == {"free in private pools", "free"}
    at = BASE + 64 * MIB
    events = [event("segment_alloc", at, 20 * MIB), alloc(at, MIB)]
    assert labels(snapshot(events, [held(at, 20 * MIB, GRAPH)])) == ["free in graph pool (1, 0)"]
