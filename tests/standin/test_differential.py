"""Random programs under PyTorch's allocator and under gmlake, and whether what is wrong is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.differential.__main__ import Worker
from tests.standin.differential.kinds import KINDS, choose, draw
from tests.standin.differential.observing import Told
from tests.standin.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
Step = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Return a process that runs programs of the kind `streams`."""
    found = Worker(draw(next(choose(1, 1, ["streams"]))).setting)
    yield found
    found.end()


def said(worker: Worker, *ops: Step, mode: str = "torch") -> str:
    """Return what is said of these steps."""
    seed = next(choose(1, 1, ["streams"]))
    order = {"mode": mode, "seeds": [seed], "skip": {}, "ops": ops}
    return worker.run(order)[seed].problem


def step(name: str, **values: Any) -> Step:
    return (name, "", values)


def used_aside(*between: Step, size: int = 4 * MIB) -> list[Step]:
    """Return steps by which a tensor is read late on another stream, and its memory used again."""
    return [
        step("pace", word="manual", lag=1),
        step("make_stream", stream=1, device=0, kind="pool"),
        step("alloc", tensor=0, size=size, stream=0),
        step("write", tensor=0, stream=0, tag=1),
        step("wait_stream", later=1, earlier=0, event=True),
        step("read", tensor=0, stream=1, tag=1),
        step("free", tensor=0),
        *between,
        step("alloc", tensor=1, size=size, stream=0),
        step("write", tensor=1, stream=0, tag=2),
        step("advance", stream=0, count=1000),
        step("synchronize", stream=None),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("programs", ["40", pytest.param("150", marks=pytest.mark.long)])
def test_random_programs_do_not_differ(programs: str) -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "tests.standin.differential", "--programs", programs, "--jobs", "2"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.stdout.splitlines()[-1:] == [f"{programs} programs, 0 differ"], (
        seen.stdout + seen.stderr
    )
    assert seen.returncode == 0


def test_a_program_depends_on_its_seed_only() -> None:
    for kind in KINDS:
        seed = next(choose(1, 1, [kind]))
        assert draw(seed) == draw(seed)
        assert draw(seed).kind == kind


@pytest.mark.parametrize("mode", ["torch", "gmlake"])
def test_a_read_of_freed_memory_is_seen(worker: Worker, mode: str) -> None:
    enable = step("enable")
    late = step("wait_stream", later=0, earlier=1, event=False)
    assert "instead of tag 1" in said(worker, enable, *used_aside(), mode=mode)
    assert said(worker, enable, *used_aside(late), mode=mode) == ""


def test_work_before_it_is_due_is_seen(worker: Worker) -> None:
    racy = [each for each in used_aside() if each[0] not in ("wait_stream", "free")]
    at = [name for name, *_ in racy].index("read") + 1
    racy.insert(at, step("advance", stream=1, count=1000))
    assert "instead of tag 1" in said(worker, *racy)


def test_a_crash_and_an_exception_are_seen(worker: Worker) -> None:
    assert "KeyError" in said(worker, step("free", tensor=0), step("replay", graph=7, stream=0))
    assert "AttributeError" in said(worker, step("nothing"))


def test_a_refusal_by_a_limit_is_no_difference(worker: Worker) -> None:
    ops = [
        step("alloc", tensor=0, size=64 * MIB, stream=0),
        step("limit", device=0, fraction=2.0**-8),
        step("alloc", tensor=1, size=64 * MIB, stream=0),
    ]
    assert said(worker, *ops) == ""


def snapshot(*events: tuple[str, int, int], segments: list[tuple[int, int]]) -> dict[str, Any]:
    """Return a snapshot of these events, and of segments that each hold one block."""
    shown = [
        {
            "device": 0,
            "address": at,
            "total_size": size,
            "blocks": [{"address": at, "size": size, "state": "active_allocated"}],
        }
        for at, size in segments
    ]
    told = [{"action": action, "addr": at, "size": size} for action, at, size in events]
    return {"segments": shown, "device_traces": [told]}


COMES, LIVES = ("segment_alloc", 0, 8), ("alloc", 0, 8)


@pytest.mark.parametrize(
    ("events", "segments", "what"),
    [
        ([COMES, LIVES], [(0, 8)], ""),
        ([], [(0, 8)], "0 bytes of segments were told, 8 are shown"),
        ([COMES, LIVES], [], "8 bytes of segments were told, 0 are shown"),
        ([COMES, LIVES], [(16, 8)], "of segments"),
        ([COMES, COMES], [], "it is there already"),
        ([("segment_unmap", 0, 8)], [], "it is not there"),
        ([COMES, LIVES, ("segment_free", 0, 8)], [], "a block lives there"),
        ([COMES, ("free_completed", 0, 8)], [(0, 8)], "no block lives there"),
    ],
)
def test_an_event_that_was_left_out_is_seen(
    events: list[tuple[str, int, int]], segments: list[tuple[int, int]], what: str
) -> None:
    told = Told(snapshot(segments=[]), 0, has_elastic=False)
    problem = told.follow(snapshot(*events, segments=segments))[1]
    assert (what in problem) if what else not problem
    assert not told.late


@pytest.mark.parametrize("events", [[COMES], [COMES, LIVES, ("free_completed", 0, 8)]])
def test_a_block_that_is_told_otherwise_is_seen(events: list[tuple[str, int, int]]) -> None:
    told = Told(snapshot(segments=[]), 0, has_elastic=False)
    assert told.follow(snapshot(*events, segments=[(0, 8)]))[1] == ""
    assert told.late == "the block at 0x0 is only shown to live"
