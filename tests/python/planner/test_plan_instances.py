"""Instances as CSV: what is read, and how what cannot be read is refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake.planner import instances, load_instance
from places import RECORDINGS

if TYPE_CHECKING:
    from pathlib import Path

INSTANCES = sorted((RECORDINGS / "planner-instances").glob("*.csv"))
SIMPLE = "id,lower,upper,size\n0,10,20,512\n1,12,15,100\n"


def written(folder: Path, text: str | bytes, name: str = "instance.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def reason_of(folder: Path, text: str | bytes) -> str:
    with pytest.raises(gmlake.TraceError) as caught:
        load_instance(written(folder, text))
    message = str(caught.value)
    assert "\n" not in message
    assert "instance.csv" in message
    return message


@pytest.mark.parametrize(
    "text",
    [
        SIMPLE,
        SIMPLE.replace("\n", "\r\n"),
        "\ufeff" + SIMPLE,
        SIMPLE.rstrip(),
        SIMPLE + "\n\n",
        "size,id,Upper,LOWER\n512,0,20,10\n100,1,15,12\n",
        "lower,upper,size,name,id\n10,20,512,weights,0\n12,15,100,,1\n",
        "id, lower, upper, size\n0, 10, 20, 512\n1, 12, 15, 100\n",
    ],
)
def test_one_instance_in_many_forms(tmp_path: Path, text: str) -> None:
    for data in (text.encode(), gzip.compress(text.encode())):
        instance = load_instance(written(tmp_path, data))
        assert instance.ids == ("0", "1")
        assert instance.lifetimes["start"].tolist() == [0, 2]
        assert instance.lifetimes["end"].tolist() == [10, 5]
        assert instance.lifetimes["size_bytes"].tolist() == [512, 100]


def test_many_gzip_members_are_read_one_by_one(tmp_path: Path) -> None:
    header, _, rows = SIMPLE.partition("\n")
    members = [gzip.compress(f"{header}\n".encode()), gzip.compress(rows.encode())]
    empty = gzip.compress(b"")
    data = members[0] + empty * 100_000 + b"\0" * 5000 + members[1] + b"\0" * 10
    assert (
        load_instance(written(tmp_path, data)).ids == load_instance(written(tmp_path, SIMPLE)).ids
    )


def test_ids_may_be_text_and_times_negative(tmp_path: Path) -> None:
    text = "id,lower,upper,size\nweights,-10,20,512\nb 2,12,15,100\n"
    instance = load_instance(written(tmp_path, text))
    assert instance.ids == ("weights", "b 2")
    assert instance.lifetimes["start"].tolist() == [0, 22]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("id,lower,upper,size\n", "no buffer"),
        ("0,10,20,512\n", "line 1: no column 'id'"),
        ("id,lower,upper\n0,1,2\n", "no column 'size'"),
        ("id,lower,upper,size,size\n0,1,2,3,4\n", "more than one column 'size'"),
        (SIMPLE + "2,1,2\n", "line 4: 3 fields, the header has 4"),
        (SIMPLE + "2,1,2,3,4\n", "line 4: 5 fields"),
        (SIMPLE + "2,1,2,1.5\n", "line 4: size is '1.5', not a whole number"),
        (SIMPLE + "2,1,2,1e3\n", "line 4: size is '1e3'"),
        (SIMPLE + "2,1,2,\n", "line 4: size is ''"),
        (SIMPLE + "2,x,2,7\n", "line 4: lower is 'x'"),
        (SIMPLE + "2,1,\u0662,7\n", "line 4: upper is"),
        (SIMPLE + "2,1,99999999999999999999999,7\n", "outside -2^62 to 2^62"),
        (SIMPLE + "2,5,5,7\n", "line 4 (id '2'): upper is not above lower"),
        (SIMPLE + "2,5,6,0\n", "line 4 (id '2'): size is outside"),
        (SIMPLE + "2,5,6,-7\n", "size is outside"),
        (SIMPLE + "2,5,6,281474976710657\n", "size is outside"),
        (SIMPLE + "1,5,6,7\n", "line 4 (id '1'): an id that was used before"),
        ("id,lower,upper,size\na,1,2,3\n\na,1,2,3\n", "line 4 (id 'a'): an id that was used"),
        (b"\xff\xfe" + SIMPLE.encode("utf-16-le"), "not text in UTF-8"),
        (gzip.compress(SIMPLE.encode())[:-9], "cut off"),
        (gzip.compress(SIMPLE.encode())[:20] + b"garbage" * 5, "gzip"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    assert reason in reason_of(tmp_path, text)


def test_a_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MAX_FILE_BYTES", 1 << 20)
    assert "unpacks to more" in reason_of(tmp_path, gzip.compress(b"0" * (1 << 21)))
    assert "at most" in reason_of(tmp_path, SIMPLE + " " * (1 << 21))


def test_missing_files_and_folders_are_trace_errors(tmp_path: Path) -> None:
    with pytest.raises(gmlake.TraceError, match="cannot be read"):
        load_instance(tmp_path / "none.csv")
    with pytest.raises(gmlake.TraceError, match="not a regular file"):
        load_instance(tmp_path)
    with pytest.raises(gmlake.TraceError, match="cannot be read"):
        load_instance("a\0b.csv")


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: (SIMPLE + text).encode()))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = written(tmp_path_factory.getbasetemp(), data, "any.csv")
    try:
        instance = load_instance(path)
    except gmlake.TraceError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either outcome is right)
    else:
        assert (instance.lifetimes["start"] < instance.lifetimes["end"]).all()


def test_many_rows_are_read_fast_enough_to_be_used(tmp_path: Path) -> None:
    count = 20_000
    rows = "".join(f"{i},{i},{i + 5},512\n" for i in range(count))
    instance = load_instance(written(tmp_path, "id,lower,upper,size\n" + rows))
    assert len(instance.lifetimes) == count
    assert instance.ids[-1] == str(count - 1)


def test_instances_are_known_by_name_or_first_line(tmp_path: Path) -> None:
    assert instances.is_instance("no/such.csv")
    assert instances.is_instance("no/such.CSV.gz")
    assert not instances.is_instance("no/such.pickle")
    assert not instances.is_instance("a\0b")
    assert instances.is_instance(written(tmp_path, SIMPLE, "plain"))
    assert instances.is_instance(written(tmp_path, gzip.compress(SIMPLE.encode()), "packed"))
    assert not instances.is_instance(written(tmp_path, b"\x1f\x8bnothing", "damaged"))
    assert not instances.is_instance(written(tmp_path, b"\x80\x04}.", "snapshot"))


def test_a_placement_is_written_beside_the_buffers(tmp_path: Path) -> None:
    instance = load_instance(written(tmp_path, SIMPLE))
    instance.save_placement(tmp_path / "out.csv", np.array([0, 512], np.uint64))
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == (
        "id,lower,upper,size,offset\n0,0,10,512,0\n1,2,5,100,512\n"
    )
    assert load_instance(tmp_path / "out.csv").ids == ("0", "1")


@pytest.mark.slow
@pytest.mark.recordings
def test_every_challenging_instance_fits_its_capacity() -> None:
    for path in INSTANCES:
        (result,) = gmlake.plan(path, capacity=1 << 20, budget_ms=4000).results
        assert result.valid
        assert result.fits, f"{path.name}: {result.peak_bytes}"
