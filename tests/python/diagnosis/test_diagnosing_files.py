"""Files of traces of objects: what is written is read, and nothing hostile is."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gmlake import ObjectTrace, TraceBuilder, TraceError
from gmlake.diagnosis import Part

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace() -> ObjectTrace:
    builder = TraceBuilder("two layers")
    path = ("forward  model.py:12", "main  train.py:3")
    x = builder.exists(1 << 30, name="weights", element_bytes=2, frames=path, scope="layers.0")
    y = builder.alloc(512, name="y \x1b[31m", stream=2**64 - 1, frames=path[1:])
    builder.kernel("mm", reads=(Part(x, ((0, 4, 8, 100, 3),)),), writes=(y,), scope="layers.0")
    builder.free(y)
    builder.keep(x)
    return builder.build()


@pytest.fixture
def file(trace: ObjectTrace, tmp_path: Path) -> Path:
    path = tmp_path / "one.gmobjects"
    trace.save(path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, **changed: bytes | None) -> None:
    """Replace members; "meta" stands for the JSON, None leaves one out."""
    found: dict[str, bytes | None] = dict(members(path))
    for key, data in changed.items():
        found["gmobjects.json" if key == "meta" else f"{key}.npy"] = data
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in found.items():
            if data is not None:
                archive.writestr(name, data)


def as_npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


def refused(path: Path) -> str:
    """Return the reason, which is one line and names the file."""
    with pytest.raises(TraceError) as caught:
        ObjectTrace.load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert text.isprintable()
    return text


def test_a_saved_trace_is_read_again(trace: ObjectTrace, file: Path) -> None:
    again = ObjectTrace.load(file)
    for name in ("apis", "objects", "accesses", "ranges", "label_of", "place_of"):
        assert np.array_equal(getattr(trace, name), getattr(again, name)), name
    for name in ("names", "labels", "places", "name"):
        assert getattr(trace, name) == getattr(again, name)


def test_the_same_trace_makes_the_same_file(trace: ObjectTrace, file: Path, tmp_path: Path) -> None:
    trace.save(tmp_path / "two.gmobjects")
    assert file.read_bytes() == (tmp_path / "two.gmobjects").read_bytes()


def test_an_empty_trace_is_read_again(tmp_path: Path) -> None:
    TraceBuilder().build().save(tmp_path / "none.gmobjects")
    again = ObjectTrace.load(tmp_path / "none.gmobjects")
    assert len(again.apis) == 0
    assert again.name == "none.gmobjects"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "absent")
    assert "not a regular file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")


@pytest.mark.parametrize("data", [b"", b"PK", b"\x80\x04K\x01.", b"{}" * 100])
def test_what_is_no_zip_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.gmobjects"
    path.write_bytes(data)
    assert "not a trace of objects" in refused(path)


def test_every_cut_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        refused(file)


def test_damage_is_refused_or_harmless(file: Path) -> None:
    whole = file.read_bytes()
    reasons = []
    for place in range(0, len(whole), 3):
        broken = bytearray(whole)
        broken[place] ^= 0x41
        file.write_bytes(broken)
        try:
            ObjectTrace.load(file)  # where the damage is in a time or the like
        except TraceError as error:
            reasons.append(str(error))
    assert len(reasons) > len(whole) / 6
    assert all(reason.isprintable() for reason in reasons)


@pytest.mark.parametrize("name", ["meta", "apis", "objects", "accesses", "ranges", "label_of"])
def test_a_missing_member_is_named(file: Path, name: str) -> None:
    rewrite(file, **{name: None})
    assert "it has no " in refused(file)


def test_pickled_arrays_are_not_read(file: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.abort, ())

    array = np.empty(1, object)
    array[0] = Bomb()
    rewrite(file, apis=as_npy(array, allow_pickle=True))
    assert "apis.npy holds something else" in refused(file)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x01\x00\x10\x00__import__('os')",
        b"\x93NUMPY\x01\x00\x10\x00((((((((((((((((",
        b"\x93NUMPY\x01\x00\x06\x00{[]:1}",
        b"\x93NUMPY\x01\x00\x0a\x00{1:1,'b':2",
        b"\x93NUMPY\x01\x00\x0c\x00{1:1,'b':2} ",
        as_npy(np.zeros(3, np.uint64)),
        as_npy(np.zeros((2, 2), np.uint32)),
        as_npy(np.zeros(3, np.uint32))[:-1],
        as_npy(np.zeros(3, np.uint32)) + b"x",
        as_npy(np.zeros(3, np.uint32), version=(2, 0)),
    ],
)
def test_other_arrays_are_refused(file: Path, data: bytes) -> None:
    rewrite(file, label_of=data)
    assert "label_of.npy" in refused(file)


@pytest.mark.parametrize(
    "change",
    [
        {"gmlake": "other"},
        {"version": 2},
        {"version": "1" * 100},
        {"names": None},
        {"names": []},
        {"names": ["a", 7]},
        {"labels": []},
        {"texts": [7, 8]},
        {"places": None},
        {"places": []},
        {"name": 7},
    ],
)
def test_other_descriptions_are_refused(file: Path, change: dict[str, Any]) -> None:
    meta = json.loads(members(file)["gmobjects.json"])
    rewrite(file, meta=json.dumps({**meta, **change}).encode())
    refused(file)


@pytest.mark.parametrize(
    "place", [[], ["a", 99], ["a", -1], ["a", True], ["a", "b"], [7], "a", None, {}]
)
def test_other_places_are_refused(file: Path, place: Any) -> None:
    meta = json.loads(members(file)["gmobjects.json"])
    meta["places"].append(place)
    rewrite(file, meta=json.dumps(meta).encode())
    assert "place" in refused(file)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_other_json_is_refused(file: Path, text: bytes) -> None:
    rewrite(file, meta=text)
    assert "cannot be read" in refused(file)


def test_a_bomb_is_not_unpacked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlake.diagnosis.object_trace.MAX_FILE_BYTES", 100_000)
    rewrite(file)
    ObjectTrace.load(file)
    with (
        zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive,
        pytest.warns(match="Duplicate"),
    ):
        archive.writestr("apis.npy", bytes(200_000))
    assert "no more are read" in refused(file)


def test_other_packings_are_refused(file: Path) -> None:
    contents = members(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    assert "packed in a way" in refused(file)


def test_numbers_beyond_the_tables_are_refused(trace: ObjectTrace) -> None:
    wrong = trace.label_of.copy()
    wrong[0] = 99
    with pytest.raises(TraceError, match="labels"):
        replace(trace, label_of=wrong)
    with pytest.raises(TraceError, match="places"):
        replace(trace, places=trace.places[:1])
    with pytest.raises(TraceError, match="names"):
        replace(trace, names=())
    with pytest.raises(TraceError, match="apis"):
        replace(trace, apis=np.zeros(3, np.uint64))
