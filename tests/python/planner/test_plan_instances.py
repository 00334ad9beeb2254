"""Instances as CSV: what is read, and how what cannot be read is refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake.planner import instances, load_instance

if TYPE_CHECKING:
    from pathlib import Path
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
