"""gmlake view on files that are huge, odd or hostile: a picture or one line, and soon."""

from __future__ import annotations

import json
import pickle
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import gmlake
from gmlake.commands import main
from gmlake.pictures.figures import Packing
from gmlake.trace import REQUEST, Kind, Trace
from recording import BASE, MIB, alloc, block, event, free, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PATIENT_SECONDS = 15  # of the processor; each takes about 1
MOST_PAGE_BYTES = 10_000_000
SCRIPT = "</script><script>attacked = 1</script><img src=x onerror='attacked = 2'>"


LONG_FRAME = {"name": "f" * 300, "filename": "g" * 300, "line": 1}


def usual() -> dict[str, Any]:
    """A snapshot that has everything once."""
    frames = [{"name": "forward", "filename": "/x/model.py", "line": 7}]
    events = [
        event("segment_alloc", BASE, 20 * MIB),
        alloc(BASE, 3 * MIB, frames=frames, user_metadata="layers.1"),
        event("free_requested", BASE, 3 * MIB),
        free(BASE, 3 * MIB),
        alloc(BASE, 2 * MIB, frames=frames),
        {"action": "oom", "size": 5, "device_free": 7, "stream": 0, "time_us": 9, "frames": []},
    ]
    blocks = [block(BASE, 8 * MIB, 2 * MIB), block(BASE + 8 * MIB, 12 * MIB, 5)]
    mark = {"stage": "END", "name": "ProfilerStep#1", "device": 0, "time_us": 5}
    return {
        **snapshot(events, [segment(BASE, 20 * MIB, blocks, segment_pool_id=(0, 0))]),
        "allocator_settings": {"roundup_power2_divisions": {"1": 2}, "x": 1},
        "external_annotations": [mark],
    }


def of_lake() -> Any:
    """What a snapshot of gmlake itself writes, with views."""
    with gmlake.Lake("sim", "stitch", "1GiB", optimize_for="memory") as lake:
        lake.keep_history(100)
        held = [lake.allocate(size * MIB) for size in (6, 20, 4, 20, 40)]
        lake.free(held[1])
        lake.free(held[3])
        lake.allocate(36 * MIB)
        seen = lake.snapshot()
    assert len(seen[0].pieces)
    return json.loads(seen.to_json())


# ---- any part of a file may be anything

EVIL: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, -1, 0, 1.5, float("nan"), float("inf"), 2**48, 2**53, 2**63, 2**64, 2**100),
        *(-(2**63), "", "x" * 2000, "\ud800", "\0", SCRIPT, [], {}, (), [[]], {"a": 1}, [None]),
        *([1, 2, 3, 4], {"a": {"b": {"c": []}}}, [2**63] * 7, "alloc", "free_completed"),
    ]
)
DOCUMENTS = {"pytorch": usual(), "gmlake": of_lake()}


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*place, key)
        if isinstance(inner, (dict, list, tuple)):
            yield from places(inner, (*place, key))


PLACES = {name: list(places(document)) for name, document in DOCUMENTS.items()}


def with_value(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    changed = dict(document) if isinstance(document, dict) else list(document)
    changed[place[0]] = with_value(document[place[0]], place[1:], value)
    return changed


@pytest.mark.filterwarnings("error")
@given(st.data(), st.sampled_from(sorted(DOCUMENTS)), st.sampled_from(["x.pickle", "x.json"]))
@settings(max_examples=300)
def test_any_value_anywhere_is_drawn_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, file: str
) -> None:
    document = with_value(
        DOCUMENTS[name], data.draw(st.sampled_from(PLACES[name])), data.draw(EVIL)
    )
    path = tmp_path_factory.getbasetemp() / file
    path.write_bytes(
        json.dumps(document).encode() if file == "x.json" else pickle.dumps(document, 4)
    )
    said = ""
    try:
        seen = gmlake.load(path)
        assert seen.report().title
        assert str(seen)
    except gmlake.Error as error:
        said = str(error)
    assert "\n" not in said


# ---- files that are too much


def pairs(count: int, **more: Any) -> list[dict[str, Any]]:
    found = []
    for number in range(count):
        address = BASE + number % 1000 * 4096
        found += [alloc(address, 4096, **more), free(address, 4096, **more)]
    return found


def cycle() -> Any:
    document = usual()
    document["device_traces"].append(document["device_traces"])
    document["segments"][0]["blocks"].append(document)
    return document


def many_categories() -> Any:
    document = of_lake()
    document["segments"] = []
    document["device_traces"] = [
        [{**entry, "category": f"category {number}"} for number, entry in enumerate(pairs(100_000))]
    ]
    document["gmlake"]["devices"][0] |= {"views": [], "pieces": []}
    return document


def long_paths() -> Any:
    frames = [
        [
            {"name": f"{number} {'f' * 200}", "filename": "m.py", "line": depth}
            for depth in range(60)
        ]
        for number in range(2000)
    ]
    held = [alloc(BASE + n * 4096, 4096, frames=frames[n]) for n in range(2000)]
    return snapshot(held)


def shared(depth: int = 12) -> Any:
    """Lists that share: a few hundred bytes as a pickle, 10^depth parts if written out."""
    value: Any = "lol"
    for _ in range(depth):
        value = [value] * 10
    return value


def shared_category() -> Any:
    document = of_lake()
    document["device_traces"][0][0]["category"] = shared()
    return document


def shared_table(name: str, *, rows: int = 0) -> Any:
    document = of_lake()
    device = document["gmlake"]["devices"][0]
    device[name] = [[shared()] * len((device[name] or [[0] * 8])[0])] * rows or shared()
    return document


def repeated(name: str) -> Any:
    """The same row very often: two bytes each as a pickle."""
    document = of_lake()
    device = document["gmlake"]["devices"][0]
    device[name] = [(device[name] or [[0] * 8])[0]] * 100_000
    return document


def same_events_for_many_devices() -> Any:
    document = of_lake()
    document["device_traces"] = [document["device_traces"][0] * 1000] * 100_000
    return document


def no_pieces() -> Any:
    document = of_lake()
    document["gmlake"]["devices"][0]["pieces"] = []
    return document


def memory_of_a_view_elsewhere_too() -> Any:
    document = of_lake()
    document["gmlake"]["devices"][0]["pieces"][0][1] = document["segments"][0]["address"]
    return document


def segments_over_each_other() -> Any:
    spans = [(BASE, 2**46), (BASE + MIB, MIB)]
    return snapshot([], [segment(*span, [block(*span, 5)]) for span in spans])


DRAWN: dict[str, Callable[[], Any]] = {
    "the usual": usual,
    "no events": lambda: snapshot([]),
    "one event": lambda: snapshot([alloc(BASE, 1)]),
    "an event of nothing": lambda: snapshot([alloc(BASE, 0)]),
    "no times": lambda: snapshot([{**one, "time_us": None} for one in pairs(50)]),
    "a name of 10 MB": lambda: snapshot(pairs(50, user_metadata="n" * 10_000_000)),
    "a path of 10 MB": lambda: snapshot(
        pairs(50, frames=[{"name": "f" * 10_000_000, "filename": "g" * 10_000_000, "line": 1}])
    ),
    "100 streams": lambda: snapshot(
        [{**one, "stream": number // 2 % 100} for number, one in enumerate(pairs(2000))]
    ),
    "1000 devices": lambda: {
        "segments": [],
        "device_traces": [pairs(2) for _ in range(1000)],
    },
    "one frame 60 times in every list": lambda: snapshot(
        [{**one, "frames": [LONG_FRAME] * 60} for one in pairs(50_000)]
    ),
    "scripts as names": lambda: snapshot(
        [alloc(BASE, 9, user_metadata=SCRIPT, frames=[frame_of(SCRIPT)]), *pairs(9)[2:]]
    ),
    "200,000 categories": many_categories,
    "12 MB of call paths": long_paths,
    "lists that share as a category": shared_category,
    "100,000 pieces unmapped": lambda: snapshot(
        [event("segment_unmap", BASE + number * 4 * MIB, 2 * MIB) for number in range(100_000)]
    ),
    "views that lie nowhere": no_pieces,
    "blocks at the last addresses": lambda: snapshot(
        [alloc(2**64 - 2**48 - 1, 2**47), alloc(0, 512)],
        [segment(2**63, 2**40, [block(2**63, 2**40, 2**40)])],
    ),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "itself within": cycle,
    "beyond the last address": lambda: snapshot([alloc(2**64 - 1, 512)]),
    "more bytes than can be": lambda: snapshot(
        [alloc(number, 2**48) for number in range(1, 20_000)]
    ),
    "a text for events": lambda: {"segments": [], "device_traces": ["alloc" * 1000]},
    "a number": lambda: 7,
    **{
        f"lists that share as {name}, {rows} rows": partial(shared_table, name, rows=rows)
        for name in ("views", "pieces")
        for rows in (0, 3)
    },
    "the same row 100,000 times as pieces": partial(repeated, "pieces"),
    "the same events for 100,000 devices": same_events_for_many_devices,
    "20,000 devices": lambda: {"segments": [], "device_traces": [pairs(1)] * 20_000},
    "segments over each other": segments_over_each_other,
    "memory of a view elsewhere, too": memory_of_a_view_elsewhere_too,
}


def frame_of(text: str) -> dict[str, Any]:
    return {"name": text, "filename": text, "line": 1}


def view(folder: Path, document: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Path]:
    monkeypatch.chdir(folder)
    Path("x.pickle").write_bytes(pickle.dumps(document, 4))
    begin = time.process_time()
    code = main(["view", "x.pickle"])
    assert time.process_time() - begin < PATIENT_SECONDS
    return code, folder / "x.html"


LONG_ANSWERS = {"1000 devices", "12 MB of call paths", "200,000 categories"}
ANSWERED = [
    pytest.param(name, marks=[pytest.mark.long] if name in LONG_ANSWERS else [], id=name)
    for name in DRAWN
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_odd_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.pickle").write_bytes(pickle.dumps(DRAWN[name](), 4))
    # Each command asks the same snapshot, which is read once: reading is what takes time.
    once = cache(gmlake.load)
    for command in ("query", "compare"):
        monkeypatch.setattr(f"gmlake.commands.{command}.load", once)
    begin = time.process_time()
    for by in ("line", "owner", "pool"):
        assert main(["query", "x.pickle", "--by", by, "--json"]) == 0
        for one in json.loads(capsys.readouterr().out)["answers"]:
            said = sum(row["bytes"] for row in one["rows"]) + one["others"]["bytes"]
            assert said == one["live_bytes"]
    assert main(["compare", "x.pickle", "x.pickle", "--json"]) == 0
    for one in json.loads(capsys.readouterr().out)["comparisons"]:
        assert {row["what"] for row in one["rows"]} <= {"same"}
    assert main(["query", "x.pickle"]) == main(["compare", "x.pickle@start", "x.pickle@end"]) == 0
    assert time.process_time() - begin < 2 * PATIENT_SECONDS


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    code, page = view(tmp_path, REFUSED[name](), monkeypatch)
    assert code == 2
    assert not page.exists()
    said = capsys.readouterr().err
    assert said.startswith("gmlake: x.pickle: ")
    assert said.count("\n") == 1
    assert len(said) < 300


def test_the_upper_half_of_all_addresses_is_drawn_above_the_lower(tmp_path: Path) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(snapshot([alloc(2**63, 512), alloc(4096, 1024)]), 4))
    figures = gmlake.load(path).report().figures
    packing = next(figure for figure in figures if isinstance(figure, Packing))
    assert dict(zip(packing.size.tolist(), packing.offset.tolist(), strict=True)) == {
        1024: 0,
        512: 1024,
    }


def test_long_names_of_marks_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = np.zeros(2000, REQUEST)
    requests["kind"], requests["time_ns"] = Kind.MARK, 1 + np.arange(2000)
    Trace(requests, labels=("m" * 4_000_000,)).save(tmp_path / "x.gmtrace")
    monkeypatch.chdir(tmp_path)
    assert main(["view", "x.gmtrace"]) == 0
    assert (tmp_path / "x.html").stat().st_size < MOST_PAGE_BYTES
