"""A child of fork and the lakes of its parent: an exception, and nothing that waits."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

import gmlake
from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENT_SECONDS = 300
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture
def busy() -> Iterator[gmlake.Lake]:
    """A lake in which another thread is nearly always inside a call."""
    lake = gmlake.Lake("host", "stitch", "256MiB")
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            held = [lake.allocate(3 << 20) for _ in range(20)]
            for block in held:
                lake.free(block)
            lake.trim()

    thread = threading.Thread(target=work)
    thread.start()
    yield lake
    is_over.set()
    thread.join()
    lake.close()


def in_child(action: Callable[[], bool]) -> bool:
    """Return whether a child came to True in time."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if action() else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + PATIENT_SECONDS
    while time.monotonic() < deadline:
        if (status := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(status[1]) == 0
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError as error:
        return "forked" in str(error)
    return False


def test_each_call_on_a_lake_of_the_parent_is_refused(busy: gmlake.Lake) -> None:
    block = busy.allocate(4096)
    calls: list[Callable[[], object]] = [
        busy.stats,
        busy.trim,
        busy.snapshot,
        lambda: busy.allocate(512),
        lambda: busy.free(block),
        lambda: _core.Replay(busy, 0).run(b""),
    ]
    for call in calls:
        for _ in range(5):
            assert in_child(lambda call=call: is_refused(call))  # type: ignore[misc]
    assert in_child(lambda: busy.closed and not block.is_live)
    busy.free(block)


def test_a_child_may_drop_what_it_inherited(busy: gmlake.Lake) -> None:
    def drop() -> bool:
        nonlocal busy
        busy.close()
        del busy
        with gmlake.Lake("host", "stitch", "64MiB") as own:
            own.free(own.allocate(4096))
        return True

    for _ in range(20):
        assert in_child(drop)
