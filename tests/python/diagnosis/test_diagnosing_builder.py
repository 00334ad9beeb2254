"""TraceBuilder: what it writes down, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from gmlake.diagnosis import Part, TraceBuilder
from gmlake.diagnosis.object_layout import (
    BEFORE,
    KEPT,
    READS,
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
