"""Random programs under PyTorch's allocator and under gmlake, and whether what is wrong is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin.differential.__main__ import Worker
from tests.standin.differential.kinds import choose, draw
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
def test_random_programs_do_not_differ() -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "tests.standin.differential", "--programs", "40", "--jobs", "2"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.stdout.splitlines()[-1:] == ["40 programs, 0 differ"], seen.stdout + seen.stderr
    assert seen.returncode == 0


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
