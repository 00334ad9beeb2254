"""Folders that ranks wrote into: what can be read is reported, whatever else lies there named."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmlake.errors import TraceError
from gmlake.jobs.folder import read_folder
from gmlake.jobs.report import report_of
from gmlake.jobs.summary import MOST_POINTS, RUNNING, of_bytes, to_bytes
from made_ranks import BEGAN, MIB, device, full_rank, line, rank, write

if TYPE_CHECKING:
    from pathlib import Path

WORLD = 6
LARGEST_FILE = 50 << 10


def plain(number: int, world: int = WORLD, **changed: Any) -> Any:
    return rank(number, world, device([100 * MIB] * 10, [line(3, 90 * MIB)]), **changed)


def test_a_file_says_what_the_rank_did() -> None:
    for number in (7, 13, 14):
        one = full_rank(number, 1024)
        assert of_bytes(to_bytes(one)) == one


def test_the_largest_file_is_small() -> None:
    data = to_bytes(full_rank(13, 1024))
    assert len(data) < LARGEST_FILE
    assert len(of_bytes(data).devices[0].curve.live) > MOST_POINTS // 2


@settings(max_examples=30)
@given(left=st.sets(st.integers(0, WORLD - 1), min_size=1))
def test_ranks_without_a_file_are_named(
    left: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    write(folder, *(plain(number) for number in left))
    made = report_of(read_folder(folder))
    assert made.to_dict()["missing"] == sorted(set(range(WORLD)) - left)
    assert [one["rank"] for one in made.to_dict()["ranks"]] == sorted(left)
    assert ("no file of rank" in str(made)) == (len(left) < WORLD)
    assert made.report().figures


@settings(max_examples=60)
@given(data=st.data())
def test_a_file_that_is_cut_off_is_named_and_the_rest_reported(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    paths = write(folder, plain(0, 2), plain(1, 2))
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[: data.draw(st.integers(0, len(whole) - 2))])
    made = report_of(read_folder(folder))
    assert made.to_dict()["unreadable"] == [f"{paths[1].name}: it is cut off, or no JSON"]
    assert made.to_dict()["missing"] == [1]
    assert f"not readable: {paths[1].name}" in str(made)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something lies in a document, by its keys."""
    if isinstance(value, dict):
        return [path, *(p for key in value for p in places(value[key], (*path, key)))]
    if isinstance(value, list):
        return [path, *(p for at, each in enumerate(value) for p in places(each, (*path, at)))]
    return [path]


@settings(max_examples=200)
@given(data=st.data())
def test_a_file_with_anything_in_any_place_is_read_or_named(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("job")
    paths = write(folder, plain(0, 2), full_rank(13, 1024))
    document = json.loads(to_bytes(plain(1, 2)))
    path = data.draw(st.sampled_from([each for each in places(document) if each]))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(JSON)
    (folder / "other.json").write_text(json.dumps(document))
    found = read_folder(folder)
    assert len(found.unreadable) <= 1
    assert all("\n" not in each and each.startswith("other.json: ") for each in found.unreadable)
    assert sum(len(job.ranks) for job in found.jobs) + len(found.unreadable) == len(paths) + 1
    for number in range(1, len(found.jobs) + 1):
        made = report_of(found, number)
        assert str(made)
        assert json.dumps(made.to_dict(), allow_nan=False)
        assert made.report().figures is not None


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80\x04.", b"[" * 100_000, b'{"schema": "gmlake.rank/2"}', b"[]", b"NaN", b"\xff"],
)
def test_files_of_others_are_named(data: bytes, tmp_path: Path) -> None:
    write(tmp_path, plain(0, 1))
    (tmp_path / "alien\n.json").write_bytes(data)
    (tmp_path / "inside").mkdir()
    (tmp_path / ".hidden").write_bytes(data)
    made = report_of(read_folder(tmp_path))
    named = [each.partition(": ")[0] for each in made.to_dict()["unreadable"]]
    assert named == ["alien\\n.json", "inside"]
    assert str(made).count("not readable: ") == 2


def test_a_refusal_of_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    one = full_rank(13, 1024)
    write(tmp_path, replace(one, refusals=(replace(one.refusals[0], device=5),)))
    write(tmp_path, plain(0, 1))
    assert "of a device that it does not have" in read_folder(tmp_path).unreadable[0]


def test_ranks_that_had_not_ended_are_named(tmp_path: Path) -> None:
    states = [plain(n, 3, state=RUNNING, steps=steps) for n, steps in ((0, 8), (1, 16), (2, 8))]
    write(tmp_path, *states)
    said = str(report_of(read_folder(tmp_path)))
    assert "cut off: ranks 0, 2, after step 8 or later; rank 1, after step 16 or later" in said
    many = tmp_path / "many"
    write(many, *(plain(n, 30, state=RUNNING, steps=n) for n in range(30)))
    said = str(report_of(read_folder(many)))
    assert "cut off: ranks 0-29, after steps 0 to 29 or later" in said


# ---- several jobs


def test_the_last_job_is_reported_and_an_earlier_one_by_its_number(tmp_path: Path) -> None:
    write(tmp_path, plain(0), plain(1))
    write(tmp_path, *(plain(n, started=BEGAN + 7200, written=BEGAN + 9000) for n in (2, 3)))
    found = read_folder(tmp_path)
    assert [[one.rank for one in job.ranks] for job in found.jobs] == [[0, 1], [2, 3]]
    assert report_of(found).to_dict()["missing"] == [0, 1, 4, 5]
    assert report_of(found, 1).to_dict()["missing"] == [2, 3, 4, 5]
    assert "1 more in this folder" in str(report_of(found))
    with pytest.raises(TraceError, match="there is no job 3; there are 2"):
        report_of(found, 3)


@pytest.mark.parametrize(
    "changed", [{"restart": 1}, {"job": "another"}, {"world": WORLD + 1}, {"rank": 0}]
)
def test_what_began_anew_is_another_job(changed: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, plain(0), plain(1))
    later = {"pid": 5, "started": BEGAN + 60, **changed}
    write(tmp_path, plain(1, **{"rank": 1, **later}))
    assert [len(job.ranks) for job in read_folder(tmp_path).jobs] == [2, 1]


def test_processes_without_a_rank_are_named_by_their_number(tmp_path: Path) -> None:
    write(tmp_path, *(plain(-1, 1, pid=pid) for pid in (8, 9)))
    made = report_of(read_folder(tmp_path))
    assert [one.name for one in made.members] == ["process 8 on node-1", "process 9 on node-1"]
    assert made.to_dict()["missing"] == []


@pytest.mark.parametrize("name", ["", "missing", "file.json"])
def test_a_folder_without_a_rank_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(b"{}")
    with pytest.raises(TraceError, match=r"no rank of a job has left a file|no such folder"):
        read_folder(tmp_path / name)


# ---- many ranks


def test_memory_is_bounded_for_each_file() -> None:
    data = to_bytes(full_rank(13, 1024))
    of_bytes(data)
    tracemalloc.start()
    try:
        kept = [of_bytes(data) for _ in range(8)]
        held, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert highest / len(kept) < 4 * LARGEST_FILE
    assert held / len(kept) < 1.5 * LARGEST_FILE


def test_a_job_of_1024_ranks_is_reported(tmp_path: Path) -> None:
    world = 1024
    write(tmp_path, *(full_rank(number, world) for number in range(world) if number != 500))
    made = report_of(read_folder(tmp_path), top=3)
    assert made.to_dict()["missing"] == [500]
    assert {one.name for one in made.stragglers if one.kind == "grows"} == {
        f"rank {number}" for number in range(7, world, 64)
    }
    assert {one["rank"] for one in made.to_dict()["refusals"]} == set(range(13, world, 100))
    said = str(made)
    assert "grows: 10 more, which --json names" in said
    assert len(said.splitlines()) < 60
