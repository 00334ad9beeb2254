"""SegmentTable: parts of a row of segments come and go, as in a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gmlake.snapshots.reading import Segment, SegmentTable

ROOM = 4000
CHANGES = st.lists(
    st.tuples(st.integers(0, ROOM - 1), st.integers(1, 40), st.booleans()), max_size=600
)


def covered(segments: list[Segment]) -> dict[int, int]:
    """Return the stream that each byte has."""
    return {
        address + offset: stream for address, size, stream, *_ in segments for offset in range(size)
    }


@given(CHANGES, st.integers(0, 700))
def test_parts_come_and_go(changes: list[tuple[int, int, bool]], count: int) -> None:
    first: list[Segment] = [(5 * number, 3, 1, 0, 0, False) for number in range(count)]
    table = SegmentTable(first)
    expected = covered(first)
    for number, (begin, size, is_added) in enumerate(changes, 2):
        table.replace(begin, begin + size, (begin, size, number, 0, 0, False) if is_added else None)
        for address in range(begin, begin + size):
            expected.pop(address, None)
            if is_added:
                expected[address] = number
    found = table.all()
    assert covered(found) == expected
    assert all(size > 0 for _, size, *_ in found)
    ends = [address + size for address, size, *_ in found]
    assert all(end <= after[0] for end, after in zip(ends, found[1:], strict=False))
