"""Spans: any part of them comes and goes, as in a dict of bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gmlake.snapshots.spans import Span, Spans

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOM = 4000
CHANGES = st.lists(
    st.tuples(st.integers(0, ROOM - 1), st.integers(1, 40), st.booleans()), max_size=600
)


def covered(spans: Iterable[Span]) -> dict[int, int]:
    """Return what each byte belongs to."""
    return {address: what for begin, end, what in spans for address in range(begin, end)}


@given(CHANGES, st.integers(0, 700))
def test_parts_come_and_go(changes: list[tuple[int, int, bool]], count: int) -> None:
    first: list[Span] = [(5 * number, 5 * number + 3, 1) for number in range(count)]
    spans = Spans(first)
    expected = covered(first)
    for number, (begin, size, is_added) in enumerate(changes, 2):
        end = begin + size
        inside = {
            address: expected.pop(address) for address in range(begin, end) if address in expected
        }
        found = spans.within(begin, end)
        assert {a: what for a, what in covered(found).items() if begin <= a < end} == inside
        if is_added:
            spans.put((begin, end, number))
            expected |= dict.fromkeys(range(begin, end), number)
        else:
            assert spans.take(begin, end) == found
    assert covered(spans) == expected
    left = list(spans)
    assert all(begin < end for begin, end, _ in left)
    assert all(one[1] <= after[0] for one, after in pairwise(left))
