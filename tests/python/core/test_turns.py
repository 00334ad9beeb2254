"""Each thread has turns of its own; the last entry counts, and exits come in any order."""

from __future__ import annotations

import threading

import pytest

from gmlake import _core


class _Turn(_core.Turn):
    def __init__(self, number: int) -> None:
        self._number = number

    def number(self) -> int:
        return self._number


class _In(_core.Inside):
    is_everywhere = False

    def region(self) -> tuple[int, bool, bool]:
        return 7, False, False


def test_the_last_entry_counts_in_any_order_of_exits() -> None:
    first, second = _Turn(1), _Turn(2)
    assert _core.torch_turn() == 0
    with first:
        assert _core.torch_turn() == 1
        second.__enter__()
        assert _core.torch_turn() == 2
    assert _core.torch_turn() == 2
    second.__exit__(None, None, None)
    assert _core.torch_turn() == 0


def test_turns_and_regions_do_not_hide_each_other() -> None:
    with _In(), _Turn(3):
        assert (_core.torch_region(), _core.torch_turn()) == (7, 3)
    with _Turn(3):
        assert not _core.torch_has_entered()
        with _In():
            assert (_core.torch_region(), _core.torch_turn()) == (7, 3)
        assert _core.torch_region() == 0
    assert _core.torch_turn() == 0


def test_a_turn_is_the_thread_s_own() -> None:
    seen: list[int] = []
    with _Turn(5):
        thread = threading.Thread(target=lambda: seen.append(_core.torch_turn()))
        thread.start()
        thread.join()
    assert seen == [0]


def test_an_entry_ends_with_its_object() -> None:
    turn = _Turn(6)
    turn.__enter__()
    del turn
    assert _core.torch_turn() == 0


@pytest.mark.parametrize(("number", "error"), [(0, ValueError), (-1, OverflowError)])
def test_a_turn_has_a_number_above_zero(number: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        _Turn(number).__enter__()
    assert _core.torch_turn() == 0


def test_what_is_no_graph_cannot_be_spoiled() -> None:
    assert _core.torch_last_graph() == 0
    with pytest.raises(ValueError, match="graph 12 is gone"):
        _core.torch_spoil_graph(12, 0)
