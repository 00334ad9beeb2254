"""gmlake query and gmlake compare: the page's figures as tables and as JSON of stable keys."""

from __future__ import annotations

import json
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.commands import main
from gmlake.pictures.figures import Blocks, Moments
from gmlake.snapshots.asking import GROUPS
from places import ROOT
from recording import BASE, FAR, MIB, alloc, block, event, figure, free, segment

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


def frames(line: int, function: str = "step") -> list[Json]:
    return [{"name": function, "filename": "/home/me/train.py", "line": line}]


def first_device() -> list[Json]:
    """The peak is event 4, 60 MiB; a request of 500 MiB is refused after it, and a free ends it."""
    common = {"time_us": 2_000_000}
    return [
        event("segment_alloc", BASE, 100 * MIB),
        alloc(BASE, 10 * MIB, frames=frames(7), user_metadata="kv cache"),
        alloc(BASE + 10 * MIB, 20 * MIB, frames=frames(7), stream=3),
        alloc(BASE + 30 * MIB, 20 * MIB, frames=frames(7), stream=3),
        alloc(BASE + 50 * MIB, 10 * MIB, frames=frames(9, "loss"), pool_id=(0, 2)),
        free(BASE, 10 * MIB),
        {"action": "oom", "size": 500 * MIB, "device_free": 20 * MIB, "stream": 0, **common},
        free(BASE + 10 * MIB, 20 * MIB),
    ]


def document() -> Json:
    """Two devices: the first refused a request, the second holds more."""
    far = FAR + 100 * MIB
    parts = [block(BASE, 30 * MIB), block(BASE + 30 * MIB, 20 * MIB, 20 * MIB)]
    parts += [block(BASE + 50 * MIB, 10 * MIB, 10 * MIB), block(BASE + 60 * MIB, 40 * MIB)]
    second = [alloc(far, 300 * MIB, frames=frames(40, "load"))]
    return {
        "segments": [
            segment(BASE, 100 * MIB, parts),
            segment(far, 300 * MIB, [block(far, 300 * MIB, 300 * MIB)], device=1),
        ],
        "device_traces": [first_device(), [event("segment_alloc", far, 300 * MIB), *second]],
        "allocator_settings": {"gmlake_device_bytes.0": 150 * MIB},
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(document(), 4))
    return path


def asked(capsys: Any, *words: object) -> Json:
    assert main([*map(str, words), "--json"]) == 0
    answer: Json = json.loads(capsys.readouterr().out)
    return answer


def query(capsys: Any, *words: object) -> Json:
    """The answer for device 0."""
    (answer,) = asked(capsys, "query", *words, "--device", 0)["answers"]
    return dict(answer)


def shown(answer: Json, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in answer["rows"]]


def test_the_moment_that_the_page_shows_is_asked_about(file: Path, capsys: Any) -> None:
    answer = query(capsys, file)
    seen = gmlake.Snapshot.load(file)
    moments = next(one for one in seen.report().figures if isinstance(one, Moments))
    moment = moments.moments[moments.shown]
    assert answer["moment"] == {
        "name": "at the refusal",
        "event": moment.at,
        "events": 8,
        "seconds": moment.seconds,
        "says": list(moment.says),
    }
    assert moment.at == 6
    assert answer["live_bytes"] == moment.live_bytes == 50 * MIB
    assert (answer["held_bytes"], answer["free_bytes"]) == (100 * MIB, 50 * MIB)
    assert (answer["largest_free_bytes"], answer["fragmentation"]) == (40 * MIB, 1 - 40 / 50)
    assert (answer["refused_bytes"], answer["device_free_bytes"]) == (500 * MIB, 20 * MIB)
    assert (answer["others_bytes"], answer["blocks"]) == (30 * MIB, 3)
    assert shown(answer, "key", "bytes", "blocks", "share") == [
        ("train.py:7 in step()", 40 * MIB, 2, 0.8),
        ("train.py:9 in loss()", 10 * MIB, 1, 0.2),
    ]


def test_an_owner_is_a_row_of_the_pages_table(file: Path, capsys: Any) -> None:
    for at in ("refusal", "peak", "end", "start"):
        answer = query(capsys, file, "--by", "owner", "--at", at)
        assert sum(row["bytes"] for row in answer["rows"]) == answer["live_bytes"]
    answer = query(capsys, file, "--by", "owner")
    table = figure(gmlake.Snapshot.load(file).report(), Blocks)
    expected = [
        (row.site, row.size_bytes, row.count, row.category, row.stream, row.one_bytes, row.address)
        for row in table.rows
        if row.count
    ]
    keys = ("key", "bytes", "blocks", "category", "stream", "one_bytes", "address")
    assert shown(answer, *keys) == expected
    assert shown(answer, "line", "scope", "pool", "frames") == [
        ("train.py:7 in step()", "", None, ["step  /home/me/train.py:7"]),
        ("train.py:9 in loss()", "", [0, 2], ["loss  /home/me/train.py:9"]),
    ]
    at_peak = query(capsys, file, "--by", "owner", "--at", "peak")
    assert ("train.py:7 in step() · kv cache", "kv cache") in shown(at_peak, "key", "scope")


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("line", [("train.py:7 in step()", 50), ("train.py:9 in loss()", 10)]),
        ("category", [("unknown", 60)]),
        ("stream", [("stream 3", 40), ("stream 0", 20)]),
        ("pool", [("outside of private pools", 50), ("MemPool (0, 2), gone at the end", 10)]),
        ("device", [("device 0", 60)]),
    ],
)
def test_groups(file: Path, capsys: Any, by: str, expected: list[tuple[str, int]]) -> None:
    answer = query(capsys, file, "--at", "peak", "--by", by)
    assert shown(answer, "key", "bytes") == [(key, size * MIB) for key, size in expected]
    assert sum(row["share"] for row in answer["rows"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("at", "event_number", "live"),
    [("peak", 4, 60), ("refusal", 6, 50), ("end", 7, 30), ("start", -1, 0), ("2", 2, 30)],
)
def test_moments(file: Path, capsys: Any, at: str, event_number: int, live: int) -> None:
    answer = query(capsys, file, "--at", at)
    assert answer["moment"]["event"] == event_number
    assert answer["live_bytes"] == live * MIB


def test_the_device_that_was_refused_comes_first_then_the_fullest(
    tmp_path: Path, file: Path, capsys: Any
) -> None:
    assert [one["device"] for one in asked(capsys, "query", file)["answers"]] == [0, 1]
    calm = document()
    del calm["device_traces"][0][6]
    path = tmp_path / "calm.pickle"
    path.write_bytes(pickle.dumps(calm, 4))
    assert [one["device"] for one in asked(capsys, "query", path)["answers"]] == [1, 0]
    refused = asked(capsys, "query", file, "--at", "refusal")["answers"]
    assert [one["device"] for one in refused] == [0]


def test_devices_are_shares_of_all(file: Path, capsys: Any) -> None:
    answers = asked(capsys, "query", file, "--by", "device", "--at", "peak")["answers"]
    assert [(one["rows"][0]["key"], one["rows"][0]["share"]) for one in answers] == [
        ("device 0", 60 / 360),
        ("device 1", 300 / 360),
    ]
    assert main(["query", str(file), "--by", "device", "--at", "peak"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "60.0", "MiB", "16.7", "%", "4"] in [row[:6] for row in rows]
    assert ["1", "300", "MiB", "83.3", "%", "1"] in [row[:6] for row in rows]


def test_what_is_left_out_is_added_up(file: Path, capsys: Any) -> None:
    answer = query(capsys, file, "--top", 1)
    assert shown(answer, "key") == [("train.py:7 in step()",)]
    assert answer["others"] == {"rows": 1, "bytes": 10 * MIB, "blocks": 1}
    assert main(["query", str(file), "--top", "1", "--device", "0"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("run.pickle, device 0 at the refusal, event 6 of 8 Refused: 500 MiB")
    assert "It did not fit: all free memory adds up to 70.0 MiB" in said
    assert "40.0 MiB 80.0 % 2 train.py:7 in step()" in said
    assert "10.0 MiB 20.0 % 1 1 more" in said


def test_a_trace_without_lines_is_answered(tmp_path: Path, capsys: Any) -> None:
    events = [alloc(BASE, 8 * MIB), free(BASE, 8 * MIB)]
    path = tmp_path / "plain.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, 4))
    for by in GROUPS:
        answer = query(capsys, path, "--by", by)
        assert answer["live_bytes"] == sum(row["bytes"] for row in answer["rows"]) == 8 * MIB
        assert answer["held_bytes"] is answer["fragmentation"] is None


def test_no_events_are_no_error(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "empty.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}, 4))
    for by in GROUPS:
        answer = query(capsys, path, "--by", by)
        assert (answer["live_bytes"], answer["moment"]["event"]) == (0, -1)


# ---- comparing


def after() -> Json:
    """The recording of a later run: one line grew, one is gone, one is new."""
    events = [
        event("segment_alloc", BASE, 200 * MIB),
        alloc(BASE, 90 * MIB, frames=frames(7)),
        alloc(BASE + 90 * MIB, 5 * MIB, frames=frames(12, "evaluate")),
        *[alloc(BASE + (100 + n) * MIB, MIB, frames=frames(50 + n, "hook")) for n in range(3)],
    ]
    return {"segments": [], "device_traces": [events], "allocator_settings": {}}


@pytest.fixture
def later(tmp_path: Path) -> Path:
    path = tmp_path / "later.pickle"
    path.write_bytes(pickle.dumps(after(), 4))
    return path


def test_what_grew_what_shrank_what_came_and_went(file: Path, later: Path, capsys: Any) -> None:
    report = asked(capsys, "compare", file, later, "--at", "peak", "--device", 0)
    assert report["before"] == {"file": "run.pickle", "at": "peak"}
    (one,) = report["comparisons"]
    assert one["change_bytes"] == 38 * MIB
    keys = ("key", "what", "change_bytes", "before_bytes", "after_bytes", "after_blocks")
    assert shown(one, *keys) == [
        ("train.py:7 in step()", "grew", 40 * MIB, 50 * MIB, 90 * MIB, 1),
        ("train.py:12 in evaluate()", "new", 5 * MIB, 0, 5 * MIB, 1),
        *[(f"train.py:{n} in hook()", "new", MIB, 0, MIB, 1) for n in (50, 51, 52)],
        ("train.py:9 in loss()", "gone", -10 * MIB, 10 * MIB, 0, 0),
    ]
    few = asked(capsys, "compare", file, later, "--at", "peak", "--top", 3)["comparisons"][0]
    assert [row["what"] for row in few["rows"]] == ["grew", "new", "gone"]
    assert few["others"] == {"rows": 3, "change_bytes": 3 * MIB}


def test_the_table_of_a_comparison(file: Path, later: Path, capsys: Any) -> None:
    assert main(["compare", str(file), str(later), "--at", "peak", "--top", "3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "run.pickle, device 0 at the peak, event 4 of 8: 60.0 MiB -> later.pickle"
    )
    assert "+40.0 MiB 50.0 MiB 90.0 MiB 3 -> 1 grew train.py:7 in step()" in said
    assert "-10.0 MiB 10.0 MiB 0 B 1 -> 0 gone train.py:9 in loss()" in said
    assert "+3.00 MiB 3 more" in said


def test_pools_are_compared_by_their_ids_and_say_their_kind(tmp_path: Path, capsys: Any) -> None:
    """What tells the kind may lie in one recording alone."""
    paths = []
    for name, stream in (("a", 9), ("b", 0)):
        held = [alloc(BASE, MIB, stream=stream, pool_id=(0, 3)), alloc(BASE + MIB, 2 * MIB)]
        held.append(alloc(BASE + 8 * MIB, 4 * MIB, stream=9, pool_id=(2, 0)))
        paths.append(tmp_path / f"{name}.pickle")
        paths[-1].write_bytes(pickle.dumps({"segments": [], "device_traces": [held]}, 4))
    (one,) = asked(capsys, "compare", *paths, "--by", "pool")["comparisons"]
    assert {(row["key"], row["what"]) for row in one["rows"]} == {
        ("MemPool (0, 3)", "same"),
        ("outside of private pools", "same"),
        ("graph pool (2, 0)", "same"),
    }
    alike = [alloc(BASE + n * MIB, MIB, stream=9, pool_id=(n, 0)) for n in range(1, 3)]
    paths[1].write_bytes(pickle.dumps({"segments": [], "device_traces": [alike]}, 4))
    (one,) = asked(capsys, "compare", paths[1], paths[1], "--by", "owner")["comparisons"]
    assert [row["pool"] for row in one["rows"]] == [[1, 0], [2, 0]]
    for by in ("pool", "owner"):
        rows = query(capsys, paths[0], "--by", by)["rows"]
        told = [tuple(row[key] for key in OF_POOL.split()) for row in rows]
        assert told == [
            ([2, 0], "graph", True, None),
            (None, None, None, None),
            ([0, 3], None, False, None),
        ]


def test_two_moments_of_one_recording(file: Path, capsys: Any) -> None:
    report = asked(capsys, "compare", f"{file}@peak", f"{file}@end", "--device", 0)
    assert (report["before"]["at"], report["after"]["at"]) == ("peak", "end")
    (one,) = report["comparisons"]
    assert one["change_bytes"] == -30 * MIB
    assert shown(one, "key", "what", "change_bytes") == [
        ("train.py:9 in loss()", "same", 0),
        ("train.py:7 in step()", "shrank", -30 * MIB),
    ]


def test_the_moment_of_a_file_goes_before_that_of_both(file: Path, capsys: Any) -> None:
    report = asked(capsys, "compare", f"{file}@2", file, "--at", "peak", "--device", 0)
    assert (report["before"]["at"], report["after"]["at"]) == ("2", "peak")
    assert report["comparisons"][0]["change_bytes"] == 30 * MIB


def test_a_file_may_have_a_moment_in_its_name(file: Path, capsys: Any) -> None:
    odd = file.with_name("run.pickle@peak")
    odd.write_bytes(file.read_bytes())
    report = asked(capsys, "compare", odd, f"{odd}@end", "--device", 0)
    assert report["before"] == {"file": "run.pickle@peak", "at": None}


def test_the_same_lines_of_other_folders_are_the_same(tmp_path: Path, capsys: Any) -> None:
    """What all lines share is left out, of both recordings together."""
    paths = []
    for name, files in (("a", ["train.py"]), ("b", ["train.py", "sub/model.py"])):
        events = [
            alloc(
                BASE + n * 8 * MIB,
                MIB,
                frames=[{"name": "f", "filename": f"/w/x/{one}", "line": 3}],
            )
            for n, one in enumerate(files)
        ]
        paths.append(tmp_path / f"{name}.pickle")
        paths[-1].write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, 4))
    (one,) = asked(capsys, "compare", *paths)["comparisons"]
    expected = [("sub/model.py:3 in f()", "new"), ("train.py:3 in f()", "same")]
    assert shown(one, "key", "what") == expected


def test_devices_are_compared_by_number(file: Path, later: Path, capsys: Any) -> None:
    both = asked(capsys, "compare", file, file, "--at", "peak")["comparisons"]
    assert [(one["before"]["device"], one["after"]["device"]) for one in both] == [(0, 0), (1, 1)]
    assert {row["what"] for one in both for row in one["rows"]} == {"same"}
    other = after()
    other["device_traces"].insert(0, [])
    path = later.with_name("rank1.pickle")
    path.write_bytes(pickle.dumps(other, 4))
    (pair,) = asked(capsys, "compare", later, path)["comparisons"]
    assert (pair["before"]["device"], pair["after"]["device"]) == (0, 1)
    assert pair["change_bytes"] == 0


@pytest.mark.parametrize("by", GROUPS)
def test_every_group_is_compared(file: Path, later: Path, capsys: Any, by: str) -> None:
    (one,) = asked(capsys, "compare", file, later, "--by", by, "--device", 0)["comparisons"]
    rows = sum(row["change_bytes"] for row in one["rows"]) + one["others"]["change_bytes"]
    assert rows == one["change_bytes"] == 48 * MIB


# ---- the schema

DOCUMENT = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
KEY = re.compile(r"^\| `([\w\[\].]+)` \| ([\w ]+) \|", re.MULTILINE)
TYPES = {
    "text": str,
    "number": (int, float),
    "list": list,
    "object": dict,
    "boolean": bool,
    "null": type(None),
}


def documented(heading: str) -> dict[str, tuple[Any, ...]]:
    section = DOCUMENT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return {
        key: tuple(TYPES[name] for name in types.strip().split(" or "))
        for key, types in KEY.findall(section)
    }


def found(value: object, name: str = "") -> list[tuple[str, object]]:
    """The path of every key, with its value."""
    pairs: list[tuple[str, object]] = []
    if isinstance(value, dict):
        for key, part in value.items():
            path = f"{name}.{key}".lstrip(".")
            pairs += [(path, part), *found(part, path)]
    if isinstance(value, list):
        for part in value:
            pairs += found(part, f"{name}[]")
    return pairs


def is_a(value: object, kinds: tuple[Any, ...]) -> bool:
    return any(
        isinstance(value, kind) for kind in kinds if isinstance(value, bool) is (kind is bool)
    )


def test_the_json_of_a_query_is_as_documented(file: Path, later: Path, capsys: Any) -> None:
    schema, used = documented("The JSON of a query"), set()
    for path in (file, later):
        for by in GROUPS:
            answer = asked(capsys, "query", path, "--by", by)
            assert (answer["schema"], answer["by"]) == ("gmlake.query/1", by)
            for key, value in found(answer):
                assert is_a(value, schema[key]), key
                used.add(key)
    assert used == set(schema)


def test_the_json_of_a_comparison_is_as_documented(file: Path, later: Path, capsys: Any) -> None:
    schema, used = documented("The JSON of a comparison"), set()
    of_query = documented("The JSON of a query")
    for by in GROUPS:
        answer = asked(capsys, "compare", file, later, "--by", by)
        assert (answer["schema"], answer["by"]) == ("gmlake.compare/1", by)
        for key, value in found(answer):
            other = re.sub(r"comparisons\[\]\.(before|after)\.", "answers[].", key)
            other = other.replace("comparisons[].rows", "answers[].rows")
            kinds = schema.get(key) or of_query[other]
            assert is_a(value, kinds), key
            used.add(key)
    assert set(schema) <= used


SAME_KEYS = """
device moment live_bytes blocks held_bytes free_bytes largest_free_bytes fragmentation
refused_bytes device_free_bytes others_bytes note
"""
OF_POOL = "pool pool_kind pool_is_sure pool_at_end"
OF_OWNER = f"line scope phase frames category stream {OF_POOL} one_bytes address"


def test_the_keys_of_a_query_stay(file: Path, capsys: Any) -> None:
    """Renaming a key breaks programs: then the schema needs another number."""
    answer = asked(capsys, "query", file, "--by", "owner")
    assert " ".join(answer) == "schema file at by answers"
    one = answer["answers"][0]
    assert list(one) == [*SAME_KEYS.split(), "rows", "others"]
    assert " ".join(one["moment"]) == "name event events seconds says"
    assert " ".join(one["rows"][0]) == f"key bytes blocks share {OF_OWNER}"


def test_the_keys_of_a_comparison_stay(file: Path, capsys: Any) -> None:
    """Likewise."""
    answer = asked(capsys, "compare", file, file, "--by", "owner")
    assert " ".join(answer) == "schema before after by comparisons"
    one = answer["comparisons"][0]
    assert " ".join(one) == "before after change_bytes rows others"
    assert list(one["before"]) == list(one["after"]) == SAME_KEYS.split()
    changes = "change_bytes before_bytes after_bytes before_blocks after_blocks"
    assert " ".join(one["rows"][0]) == f"key what {changes} {OF_OWNER}"
