"""What ranks say together: spreads, lines that differ, memory that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gmlake.jobs.findings import GROWS, Lines, spreads, stragglers
from gmlake.jobs.folder import Job
from made_ranks import MIB, device, line, rank

if TYPE_CHECKING:
    from gmlake.jobs.findings import Difference, Straggler
    from gmlake.jobs.summary import Line

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


def test_of_two_ranks_the_one_with_more_is_named() -> None:
    (found,) = holding([line(7, 2 * GIB)], [line(7, GIB)])
    assert (found.odd, found.odd_bytes, found.middle_bytes) == (("rank 0",), 2 * GIB, GIB)


def found_in(*lives: list[int]) -> list[Straggler]:
    return stragglers(job_of(*lives).members)


FLAT = [GIB] * 40


def test_a_rank_that_grows_is_found() -> None:
    leak = [GIB + 10 * MIB * step for step in range(40)]
    found = [one for one in found_in(FLAT, leak, FLAT) if one.kind == GROWS]
    assert [(one.name, one.step) for one in found] == [("rank 1", 2)]
    assert (found[0].before_bytes, found[0].after_bytes) == (leak[2], leak[39])
