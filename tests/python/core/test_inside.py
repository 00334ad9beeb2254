"""Who is in which region, as the core knows it: entries end on any thread, in any order."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from gmlake import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator


class In(_core.Inside):
    """An entry into the region of that number."""

    def __init__(self, number: int, *, everywhere: bool = False) -> None:
        self._number = number
        self.is_everywhere = everywhere

    def region(self) -> tuple[int, bool, bool]:
        return self._number, False, False


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    assert _core.torch_region() == 0
    assert not _core.torch_has_entered()


def elsewhere(call: Callable[[], object] = _core.torch_region) -> object:
    """Return what a call gives on another thread."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_the_inner_one_counts_and_0_is_none() -> None:
    with In(4), In(8):
        assert _core.torch_region() == 8
        with In(0):
            assert _core.torch_region() == 0
        assert _core.torch_region() == 8
        assert elsewhere() == 0


def test_entries_end_in_any_order() -> None:
    first, second, third = In(4), In(8), In(12)
    for each in (first, second, third):
        each.__enter__()
    second.__exit__(None, None, None)
    assert _core.torch_region() == 12
    third.__exit__(None, None, None)
    assert _core.torch_region() == 4
    first.__exit__(None, None, None)
    first.__exit__(None, None, None)  # once too often: nothing


def test_one_object_nests_within_itself_and_serves_threads() -> None:
    one = In(4)
    with one:
        with one, In(8), one:
            assert _core.torch_region() == 4

            def inside() -> int:
                with one:
                    return _core.torch_region()

            assert elsewhere(inside) == 4
            assert elsewhere() == 0
        assert _core.torch_region() == 4


def test_an_exit_ends_the_own_threads_entry_first() -> None:
    one = In(4)
    go, done = threading.Event(), threading.Event()
    seen = []

    def stay() -> None:
        with one:
            done.set()
            go.wait()
            seen.append(_core.torch_region())

    with one:
        thread = threading.Thread(target=stay)
        thread.start()
        done.wait()
    assert _core.torch_region() == 0
    go.set()
    thread.join()
    assert seen == [4]


def test_a_thread_may_leave_what_another_entered() -> None:
    one = In(4)
    one.__enter__()
    elsewhere(lambda: one.__exit__(None, None, None))
    assert _core.torch_region() == 0
    elsewhere(one.__enter__)  # a thread that ends inside
    assert _core.torch_has_entered()
    one.__exit__(None, None, None)


def test_everywhere_holds_for_threads_that_are_in_none_of_their_own() -> None:
    def own() -> int:
        with In(8):
            return _core.torch_region()

    with In(4, everywhere=True):
        assert (_core.torch_region(), elsewhere(), elsewhere(own)) == (4, 4, 8)
        with In(12):
            assert (_core.torch_region(), elsewhere()) == (12, 4)
        with In(16, everywhere=True):
            assert elsewhere() == 16
        assert elsewhere() == 4
    assert elsewhere() == 0


def test_what_nobody_holds_is_left() -> None:
    In(4).__enter__()
    assert _core.torch_region() == 0
    held = In(4).__enter__().__enter__()
    assert _core.torch_region() == 4
    del held
    assert _core.torch_region() == 0


def test_a_generator_is_inside_until_it_ends() -> None:
    def steps() -> Generator[int, None, None]:
        with In(4):
            yield _core.torch_region()

    going = steps()
    assert next(going) == _core.torch_region() == 4
    elsewhere(going.close)
    assert _core.torch_region() == 0


def test_what_raises_enters_nothing() -> None:
    with ExitStack() as stack, pytest.raises(TypeError):
        stack.enter_context(In("four"))  # type: ignore[arg-type]
    for wrong in (-1, 2**31):
        with pytest.raises(ValueError, match="must be from 0"):
            In(wrong).__enter__()
    with pytest.raises(ZeroDivisionError), In(4):
        _ = 1 // 0
