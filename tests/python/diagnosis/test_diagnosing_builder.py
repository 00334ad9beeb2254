"""TraceBuilder: what it writes down, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from gmlake import TraceBuilder
from gmlake.diagnosis import Part
from gmlake.diagnosis.object_layout import (
    ACCESS,
    API,
    BEFORE,
    FINDING,
    KEPT,
    LIFE,
    NO_OBJECT,
    OBJECT,
    RANGE,
    READS,
    TOUCHES,
    WRITES,
    ApiKind,
)


@pytest.fixture
def builder() -> TraceBuilder:
    return TraceBuilder("made")


def accesses(builder: TraceBuilder) -> list[tuple[int, int, int]]:
    """Return object, flags and number of ranges of each access."""
    rows = builder.build().accesses
    return [(int(row["object"]), int(row["flags"]), int(row["range_count"])) for row in rows]


def ranges(builder: TraceBuilder) -> list[Any]:
    return [tuple(int(value) for value in row) for row in builder.build().ranges]


def test_records_have_the_sizes_of_the_core() -> None:
    sizes = [one.itemsize for one in (API, OBJECT, ACCESS, RANGE, FINDING, LIFE)]
    assert sizes == [32, 24, 24, 40, 88, 56]


def test_an_empty_trace_has_nothing(builder: TraceBuilder) -> None:
    trace = builder.build()
    assert (len(trace.apis), len(trace.objects), len(trace.accesses)) == (0, 0, 0)
    assert trace.name == "made"


def test_apis_are_written_in_order(builder: TraceBuilder) -> None:
    x = builder.alloc(1 << 20, name="x", element_bytes=4, stream=7)
    y = builder.alloc(512)
    copied = builder.copy(reads=(x,), writes=(y,), stream=3)
    builder.set(writes=(y,))
    ran = builder.kernel("add", reads=(x, y), writes=(x,), touches=(y,))
    freed = builder.free(x, stream=7)
    apis = builder.build().apis
    assert (x, y, copied, ran, freed) == (0, 1, 2, 4, 5)
    assert apis["kind"].tolist() == [
        ApiKind.ALLOC,
        ApiKind.ALLOC,
        ApiKind.COPY,
        ApiKind.SET,
        ApiKind.KERNEL,
        ApiKind.FREE,
    ]
    assert apis["stream"].tolist() == [7, 0, 3, 0, 0, 7]
    assert apis["object"].tolist() == [0, 1, NO_OBJECT, NO_OBJECT, NO_OBJECT, 0]
    assert apis["access_count"].tolist() == [0, 0, 2, 1, 4, 0]
    assert apis["first_access"].tolist() == [0, 0, 0, 2, 3, 7]
    assert accesses(builder) == [
        (x, READS, 0),
        (y, WRITES, 0),
        (y, WRITES, 0),
        (x, READS, 0),
        (y, READS, 0),
        (x, WRITES, 0),
        (y, TOUCHES, 0),
    ]


def test_objects_have_size_elements_and_flags(builder: TraceBuilder) -> None:
    builder.exists(1 << 48, name="weights", element_bytes=2)
    builder.alloc(8)
    builder.keep(0)
    builder.keep(1)
    objects = builder.build().objects
    assert objects["size_bytes"].tolist() == [1 << 48, 8]
    assert objects["element_bytes"].tolist() == [2, 1]
    assert objects["flags"].tolist() == [BEFORE | KEPT, KEPT]
    assert builder.build().names == ("weights", "")
    assert builder.build().object_name(1) == "object 1"
    assert builder.api_count == 1
    assert builder.object_count == 2


def test_parts_become_ranges(builder: TraceBuilder) -> None:
    x, y = builder.alloc(1000), builder.alloc(1000)
    builder.kernel("a", reads=(y, Part(x, ((0, 4), (8, 4, 16, 3), (900, 10, 0, 1, 5)))))
    builder.kernel("b", writes=(Part(x, ((996, 4),)),))
    assert accesses(builder) == [(y, READS, 0), (x, READS, 3), (x, WRITES, 1)]
    assert ranges(builder) == [
        (0, 4, 4, 1, 1),
        (8, 4, 16, 3, 1),
        (900, 10, 10, 1, 5),
        (996, 4, 4, 1, 1),
    ]
    assert builder.build().accesses["first_range"].tolist() == [0, 0, 3]


def test_a_part_of_nothing_is_no_access(builder: TraceBuilder) -> None:
    x = builder.alloc(1000)
    builder.kernel("a", reads=(Part(x, ()),))
    assert accesses(builder) == []


def test_an_object_named_twice_is_one_access(builder: TraceBuilder) -> None:
    x, y = builder.alloc(100), builder.alloc(100)
    builder.kernel("square", reads=(x, x), writes=(y,))
    builder.kernel("pieces", reads=(Part(x, ((0, 4),)), y, Part(x, ((8, 4),))))
    builder.kernel("both", reads=[Part(x, ((0, 4),)), x])
    assert accesses(builder) == [
        (x, READS, 0),
        (y, WRITES, 0),
        (x, READS, 2),
        (y, READS, 0),
        (x, READS, 2),
    ]
    assert ranges(builder) == [
        (0, 4, 4, 1, 1),
        (8, 4, 4, 1, 1),
        (0, 100, 100, 1, 1),
        (0, 4, 4, 1, 1),
    ]


def test_labels_and_places_are_kept_once(builder: TraceBuilder) -> None:
    path = ("forward  model.py:12", "main  train.py:3")
    x = builder.alloc(8, frames=path, scope="layers.0")
    builder.kernel("mm", reads=(x,), frames=path, scope="layers.0")
    builder.kernel("mm", reads=(x,), frames=path, scope="layers.1")
    builder.free(x)
    trace = builder.build()
    assert trace.labels == ("alloc", "mm", "free")
    assert [trace.label(api) for api in range(4)] == ["alloc", "mm", "mm", "free"]
    assert trace.object_place(x) == trace.place(1)
    assert trace.place(2).scope == "layers.1"
    assert trace.place(2).frames == path
    assert trace.place(3).frames == ()
    assert len(trace.places) == 3


@pytest.mark.parametrize("size", [0, -1, (1 << 48) + 1])
def test_impossible_sizes_are_refused(builder: TraceBuilder, size: int) -> None:
    with pytest.raises(ValueError, match=r"must have 1 to 2\^48"):
        builder.alloc(size)
    assert builder.object_count == builder.api_count == 0


@pytest.mark.parametrize("size", [0, 1 << 32])
def test_impossible_elements_are_refused(builder: TraceBuilder, size: int) -> None:
    with pytest.raises(ValueError, match="elements of"):
        builder.alloc(8, element_bytes=size)


@pytest.mark.parametrize("stream", [-1, 1 << 64])
def test_impossible_streams_are_refused(builder: TraceBuilder, stream: int) -> None:
    with pytest.raises(ValueError, match="stream"):
        builder.alloc(8, stream=stream)
    assert builder.object_count == builder.api_count == 0


@pytest.mark.parametrize("number", [-1, 1, 1 << 40])
def test_unknown_objects_are_refused(builder: TraceBuilder, number: int) -> None:
    builder.alloc(8)
    for call in (builder.free, builder.keep):
        with pytest.raises(ValueError, match="there is no object"):
            call(number)
    for item in (number, Part(number, ((0, 1),))):
        with pytest.raises(ValueError, match="there is no object"):
            builder.kernel("k", reads=(item,))


def test_freed_objects_are_refused(builder: TraceBuilder) -> None:
    x = builder.alloc(8, name="x")
    builder.free(x)
    with pytest.raises(ValueError, match="the object x was freed before"):
        builder.free(x)
    with pytest.raises(ValueError, match="the object x was freed before"):
        builder.kernel("k", writes=(x,))
    assert builder.api_count == 2


@pytest.mark.parametrize(
    "wrong",
    [(0, 0), (-1, 4), (97, 4), (0, 4, 2, 2), (0, 4, 4, 0), (0, 4, 4, 26), (0, 4, 4, 1, 0)],
)
def test_impossible_ranges_are_refused(builder: TraceBuilder, wrong: Any) -> None:
    x, y = builder.alloc(100), builder.alloc(100)
    with pytest.raises(ValueError, match="is none within 100 bytes"):
        builder.kernel("k", reads=(y, Part(y, ((0, 1),)), Part(x, ((0, 4), wrong))))
    with pytest.raises(ValueError, match="is none within 100 bytes"):
        builder.kernel("k", reads=(Part(y, ((0, 1),)),), writes=(Part(x, (wrong,)),))
    builder.kernel("k", reads=(x,))
    assert accesses(builder) == [(x, READS, 0)]
    assert ranges(builder) == []
    assert builder.api_count == 3


def test_other_things_are_no_objects(builder: TraceBuilder) -> None:
    items: Any = ("x",)
    with pytest.raises(TypeError, match="str is neither"):
        builder.kernel("k", reads=items)


def test_a_builder_goes_on_after_a_trace_was_built(builder: TraceBuilder) -> None:
    x = builder.alloc(8)
    before = builder.build()
    builder.kernel("k", writes=(x,))
    assert len(before.apis) == 1
    assert len(builder.build().apis) == 2
