"""What runs in C is left where it is when the program is interrupted."""

from __future__ import annotations

import signal
import threading

import pytest

from gmlake.planner.api import interruptible


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_does_not_wait_for_the_work() -> None:
    may_end = threading.Event()
    ended = threading.Event()

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        may_end.wait(600)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        interruptible(work)
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(600)
