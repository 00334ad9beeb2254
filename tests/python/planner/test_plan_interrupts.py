"""What runs in C is left where it is when the program is interrupted."""

from __future__ import annotations

import signal
import threading

import pytest

from gmlake.planner.interrupts import interruptible


def test_it_returns_and_raises_what_the_work_does() -> None:
    assert interruptible(divmod, 7, 2) == (3, 1)
    assert interruptible(sorted, [1, 2], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        interruptible(divmod, 7, 0)


def test_other_threads_do_the_work_themselves() -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(interruptible(threading.get_ident)))
    thread.start()
    ident = thread.ident
    thread.join()
    assert seen == [ident]


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
