"""Trace: its own file format, and what check() refuses."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake import Trace, TraceError
from gmlake.trace import FINAL_BLOCK, REQUEST, SEGMENT, START_BLOCK, Kind
from gmlake.trace.binary import decode, encode
from gmlake.trace.layout import MAX_POOLS
from gmtraces import file_of, meta, reseal, section
from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

U64 = st.integers(0, 2**64 - 1)
STREAM = st.integers(0, 2**64 - 2)
SIZE = st.integers(0, 2**48)


def requests_of(*rows: tuple[int, int, int]) -> Any:
    """Requests from (kind, id, size)."""
    table = np.zeros(len(rows), REQUEST)
    for index, row in enumerate(rows):
        table["kind"][index], table["id"][index], table["size_bytes"][index] = row
    return table


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any valid trace: random events over a few live allocations."""
    start = np.zeros(draw(st.integers(0, 4)), START_BLOCK)
    for name in ("address", "block_bytes", "stream"):
        start[name] = [draw(STREAM if name == "stream" else U64) for _ in start]
    start["requested_bytes"] = [draw(SIZE) for _ in start]
    start["id"] = draw(st.permutations(range(len(start))))
    live, used, rows = list(range(len(start))), len(start), []
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(list(Kind)))
        number = draw(U64) if kind > Kind.FREE_REQUESTED else 0
        if kind == Kind.ALLOC:
            number, used = used, used + 1
            live.append(number)
        elif kind == Kind.MARK:
            number = draw(st.integers(0, 2))
        elif kind in (Kind.FREE, Kind.FREE_REQUESTED):
            if not live:
                continue
            number = draw(st.sampled_from(live))
            if kind == Kind.FREE:
                live.remove(number)
        rows.append((number, draw(SIZE), draw(U64), draw(U64), draw(STREAM), kind, 0))
    tables: dict[str, Any] = {}
    for name, dtype in (
        ("start_segments", SEGMENT),
        ("final_segments", SEGMENT),
        ("final_blocks", FINAL_BLOCK),
    ):
        table = np.zeros(draw(st.integers(0, 4)), dtype)
        for column in dtype.names or ():
            table[column] = [
                draw(st.booleans() if dtype[column].kind == "b" else U64) for _ in table
            ]
        tables[name] = table
    return Trace(
        requests=np.array(rows, REQUEST),
        start_blocks=start,
        device=draw(st.integers(0, 100)),
        settings=draw(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans())),
        labels=("a", "", "ü\x00"),
        is_expandable=draw(st.booleans()),
        **tables,
    )


@given(traces())
def test_what_is_saved_loads_the_same(trace: Trace) -> None:
    trace.check()
    assert decode(encode(trace)) == trace


def test_save_and_load_a_file(tmp_path: Path, shipped_trace: Trace) -> None:
    path = tmp_path / "a.gmtrace"
    shipped_trace.save(path)
    again = Trace.load(path)
    assert again == shipped_trace
    assert again.name == "a.gmtrace"
    assert again != Trace(requests_of())


def small() -> Trace:
    return Trace(requests_of((1, 0, 100), (1, 1, 200), (2, 0, 100)), labels=("x",))


def test_every_damage_is_one_line() -> None:
    data = encode(small())
    for index in range(len(data)):
        damaged = bytearray(data)
        damaged[index] ^= 0x41
        with pytest.raises(TraceError, match=r"^[^\n]{1,120}$"):
            decode(bytes(damaged))
        with pytest.raises(TraceError, match=r"^[^\n]{1,120}$"):
            decode(data[:index])


def test_the_hostile_files_below_would_be_valid_but_for_one_thing() -> None:
    assert decode(file_of(meta())) == Trace(requests_of())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (file_of(meta(), version=3), "later gmlake"),
        (file_of(meta(pools={}), version=2), "damaged"),
        (file_of(meta(pools=[[1, 2, 3]]), version=2), "damaged"),
        (file_of(meta(pools=[["a", 1]]), version=2), "damaged"),
        (file_of(meta(pools=[[True, 1]]), version=2), "damaged"),
        (file_of(meta(pools=[[-1, 1]]), version=2), "damaged"),
        (file_of(meta(pools=[[0, 2**64]]), version=2), "damaged"),
        (file_of(meta(pools=[[0, 1]] * (MAX_POOLS + 1)), version=2), "damaged"),
        (file_of(), "damaged"),
        (file_of(section(b"META", 5, b"[1,2]")), "damaged"),
        (file_of(section(b"META", 2, b"{}")), "damaged"),
        (file_of(section(b"META", 1 << 60, b"{}")), "damaged"),
        (file_of(section(b"META", 200000, b"[" * 200000)), "damaged"),
        (file_of(meta(device=-1)), "device is not a whole number"),
        (file_of(meta(device=1.5)), "damaged"),
        (file_of(meta(labels=[3])), "damaged"),
        (file_of(meta(rows={"requests": -1})), "requests is not a whole number"),
        (file_of(meta(rows={"requests": 1 << 40})), "requests is not a whole number"),
        (file_of(meta(rows={"requests": True})), "requests is not a whole number"),
        (file_of(meta(rows={"requests": 1})), "a column is missing"),
        (
            file_of(
                meta(rows={"requests": 1 << 23}),
                *(section(b"REQ" + bytes([n]), 1 << 23, b"") for n in range(7)),
            ),
            "damaged",
        ),
        (
            file_of(
                meta(rows={"requests": 9}),
                *(section(b"REQ" + bytes([n]), 9, b"\0" * (1 << 24)) for n in range(7)),
            ),
            "damaged",
        ),
        (reseal(struct.pack("<8sII", b"GMLTRACE", 1, 0xFFFFFFFF)), "damaged"),
    ],
)
def test_hostile_files_with_right_checksums(data: bytes, reason: str) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        decode(data)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=300))
def test_random_sections_give_one_line(noise: bytes) -> None:
    with pytest.raises(TraceError):
        decode(reseal(b"GMLTRACE" + noise))


@pytest.mark.parametrize(
    ("rows", "event", "reason"),
    [
        ([(0, 0, 1)], 0, "kind"),
        ([(9, 0, 1)], 0, "kind"),
        ([(1, 0, 2**48 + 1)], 0, "2^48"),
        ([(1, 1, 1)], 0, "at or above 1"),
        ([(1, 0, 1), (1, 0, 1)], 1, "allocated before"),
        ([(2, 0, 1), (1, 0, 1)], 0, "not allocated yet"),
        ([(3, 0, 1), (1, 0, 1)], 0, "not allocated yet"),
        ([(1, 0, 1), (2, 0, 1), (2, 0, 1)], 2, "freed before"),
        ([(2, 0, 1)], 0, "at or above 0"),
        ([(8, 1, 0)], 0, "label"),
    ],
)
def test_check_names_the_event(
    rows: list[tuple[int, int, int]], event: int, reason: str, tmp_path: Path
) -> None:
    trace = Trace(requests_of(*rows), labels=("only",))
    with pytest.raises(TraceError) as caught:
        trace.check()
    assert caught.value.event == event
    assert reason in caught.value.reason
    with pytest.raises(TraceError, match=f"event {event}: "):
        trace.save(tmp_path / "x")
    with pytest.raises(TraceError, match=f"event {event}: "):
        gmlake.replay(trace)


def test_check_looks_at_the_start_blocks() -> None:
    start = np.zeros(2, START_BLOCK)
    with pytest.raises(TraceError, match="same id"):
        Trace(requests_of(), start_blocks=start).check()
    start["id"] = (0, 2)
    with pytest.raises(TraceError, match="out of range"):
        Trace(requests_of(), start_blocks=start).check()
    start["id"] = (0, 1)
    Trace(requests_of((2, 0, 1)), start_blocks=start).check()
    with pytest.raises(TraceError, match="event 0: an allocation of an id live before"):
        Trace(requests_of((1, 0, 1)), start_blocks=start).check()


def test_check_looks_at_the_streams() -> None:
    requests = requests_of((1, 0, 1), (1, 1, 1), (2, 0, 1))
    requests["stream"] = (2**64 - 2, 2**64 - 1, 2**64 - 1)
    with pytest.raises(TraceError, match=r"event 1: .* is not a stream handle"):
        Trace(requests).check()
    start = np.zeros(1, START_BLOCK)
    start["stream"] = 2**64 - 1
    with pytest.raises(TraceError, match="has the stream"):
        Trace(requests_of(), start_blocks=start).check()


def test_arrays_of_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="requests must be a one-dimensional numpy array"):
        Trace(np.zeros(3))
    with pytest.raises(ValueError, match="requests must be"):
        Trace(np.zeros((2, 2), REQUEST))


def test_the_request_is_the_one_of_the_c_header() -> None:
    header = ROOT / "csrc" / "include" / "gmlake.h"
    text = header.read_text(encoding="utf-8")
    fields = text.partition("typedef struct gml_request {")[2].partition("}")[0]
    names = [line.split(";")[0].split()[-1] for line in fields.splitlines() if ";" in line]
    assert names == list(REQUEST.names or ())
    assert REQUEST.itemsize == 48
    for kind in Kind:
        assert f"GML_REQUEST_{kind.name} = {kind.value}," in text
