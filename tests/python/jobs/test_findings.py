"""What ranks say together: spreads, lines that differ, memory that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlake.jobs.curves import Steps
from gmlake.jobs.findings import ABOVE, GROWS, Lines, aligned, middle_of, spreads, stragglers
from gmlake.jobs.folder import Job
from gmlake.jobs.summary import MOST_LINES, MOST_POINTS, Curve, Line
from made_ranks import MIB, curve, device, line, rank

if TYPE_CHECKING:
    from gmlake.jobs.findings import Difference, Straggler

GIB = 1 << 30


def job_of(*lives: list[int]) -> Job:
    """A job whose ranks have these peaks, step by step."""
    return Job(tuple(rank(n, len(lives), device(live, [])) for n, live in enumerate(lives)))


def holding(*tables: list[Line]) -> list[Difference]:
    """What differs between ranks whose lines hold this."""
    devices = [device([GIB], lines) for lines in tables]
    job = Job(tuple(rank(n, len(tables), one) for n, one in enumerate(devices)))
    return Lines(job).differences(job.members)


def test_the_least_the_middle_and_the_most_have_their_ranks() -> None:
    found = {one.name: one for one in spreads(job_of([3 * GIB], [GIB], [2 * GIB]).members)}
    live = found["live"]
    assert (live.least, live.middle, live.most) == (GIB, 2 * GIB, 3 * GIB)
    assert (live.least_of, live.most_of) == ("rank 1", "rank 0")
    assert found["live / reserved"].most == pytest.approx(10 / 11)


# ---- lines


@pytest.mark.parametrize("odd", [2, 0.5, 0])
def test_a_line_that_holds_more_or_less_on_one_rank_is_found(odd: float) -> None:
    usual = [line(7, GIB), line(9, 3 * GIB)]
    (found,) = holding(usual, usual, [line(7, int(odd * GIB)), line(9, 3 * GIB)], usual)
    assert (found.line, found.odd, found.odd_bytes) == (
        "train.py:7 in layer7()",
        ("rank 2",),
        int(odd * GIB),
    )
    assert (found.least_bytes, found.middle_bytes, found.most_bytes) == (GIB, GIB, GIB)


def test_of_two_ranks_the_one_with_more_is_named() -> None:
    (found,) = holding([line(7, 2 * GIB)], [line(7, GIB)])
    assert (found.odd, found.odd_bytes, found.middle_bytes) == (("rank 0",), 2 * GIB, GIB)


def test_small_differences_are_not_told() -> None:
    assert holding([line(7, GIB)], [line(7, GIB + 10 * MIB)], [line(7, GIB)]) == []
    assert holding([line(7, MIB)], [line(7, MIB // 2)], [line(7, MIB)]) == []


def test_the_largest_difference_comes_first() -> None:
    usual = [line(7, GIB), line(8, GIB)]
    found = holding(usual, usual, [line(7, 2 * GIB), line(8, 4 * GIB)])
    assert [one.line for one in found] == ["train.py:8 in layer8()", "train.py:7 in layer7()"]


def test_a_line_that_a_full_list_leaves_out_may_be_there() -> None:
    full = [line(at, 50 * MIB) for at in range(MOST_LINES)]
    more = [*full[:-1], line(900, 50 * MIB)]
    assert holding(full, full, more) == []
    assert [one.odd for one in holding(full[:-1], full[:-1], more)] == [("rank 2",)]


def test_ranks_whose_lines_are_not_known_are_left_out() -> None:
    assert holding([line(7, GIB)], [], [line(7, GIB)]) == []
    assert holding([]) == []


# ---- steps


@given(sizes=st.lists(st.integers(0, 1 << 40), max_size=3000))
def test_a_curve_keeps_the_highest_of_each_stretch(sizes: list[int]) -> None:
    found = curve(sizes)
    assert len(found.live) <= MOST_POINTS
    stretches = [sizes[at : at + found.each] for at in range(0, len(sizes), found.each)]
    assert list(found.live) == [max(each) for each in stretches]
    assert list(found.reserved) == [max(each) * 11 // 10 for each in stretches]


@pytest.mark.parametrize("count", [255, 256, 257, 511, 512, 513, 1025, 5000])
def test_a_point_stands_for_as_many_steps_as_it_says(count: int) -> None:
    found = curve(list(range(count)))
    ends = [min(at + found.each, count) - 1 for at in range(0, count, found.each)]
    assert list(found.live) == ends


def test_curves_of_many_steps_stay_bounded() -> None:
    steps = Steps()
    for step in range(100_000):
        steps.add(step, 2 * step)
    found = steps.curve()
    assert MOST_POINTS // 2 <= len(found.live) <= MOST_POINTS
    assert (found.live[-1], found.reserved[-1]) == (99_999, 199_998)


def test_curves_of_different_lengths_are_compared_step_by_step() -> None:
    each, (long, short) = aligned([Curve(4, (4, 8, 9), (0,) * 3), Curve(1, (1, 5, 2, 3, 7), ())])
    assert each == 4
    assert (long.tolist(), short.tolist()) == ([4, 8, 9], [5, 7])


def found_in(*lives: list[int]) -> list[Straggler]:
    return stragglers(job_of(*lives).members)


FLAT = [GIB] * 40


def test_a_rank_that_grows_is_found() -> None:
    leak = [GIB + 10 * MIB * step for step in range(40)]
    found = [one for one in found_in(FLAT, leak, FLAT) if one.kind == GROWS]
    assert [(one.name, one.step) for one in found] == [("rank 1", 2)]
    assert (found[0].before_bytes, found[0].after_bytes) == (leak[2], leak[39])


def test_a_rank_that_is_above_the_others_from_a_step_on_is_found() -> None:
    late = [GIB] * 25 + [2 * GIB] * 15
    found = [one for one in found_in(FLAT, FLAT, FLAT, late) if one.kind == ABOVE]
    assert [(one.name, one.step) for one in found] == [("rank 3", 25)]
    assert (found[0].before_bytes, found[0].after_bytes) == (GIB, 2 * GIB)


def test_a_rank_that_got_farther_is_compared_as_far_as_the_others_got() -> None:
    late = [GIB] * 25 + [2 * GIB] * 16
    found = found_in(FLAT, FLAT, late)
    assert [(one.name, one.kind, one.step) for one in found] == [("rank 2", ABOVE, 25)]
    _, rows = aligned([Curve(1, tuple(each), ()) for each in (FLAT, FLAT, late, [])])
    assert middle_of(rows).tolist() == FLAT


@pytest.mark.parametrize("place", range(5, 36))
def test_memory_that_jumps_once_does_not_grow(place: int) -> None:
    jump = [GIB + step % 3 * MIB + (step >= place) * GIB for step in range(40)]
    assert [one for one in found_in(jump, jump) if one.kind == GROWS] == []


@pytest.mark.parametrize("seed", range(20))
def test_lengths_that_vary_are_neither(seed: int) -> None:
    draw = np.random.default_rng(seed)
    lives = [(draw.lognormal(0.0, 0.5, 60) * GIB).astype(int).tolist() for _ in range(4)]
    assert [one for one in found_in(*lives) if one.kind == ABOVE] == []
    jumps = [GIB] * 20 + [2 * GIB] + [GIB] * 19
    assert found_in(FLAT, jumps, FLAT) == []


def test_a_rank_that_rose_and_fell_does_not_grow() -> None:
    live = [size * GIB for size in (1, 4, 2, 3) for _ in range(10)]
    assert found_in(live, live) == []


def test_the_start_of_all_and_few_steps_are_no_growth() -> None:
    start = [GIB, 2 * GIB, *[3 * GIB] * 38]
    assert found_in(start, start) == []
    assert found_in([GIB * step for step in range(9)]) == []
    assert found_in([], FLAT) == []
