"""What a program that is forecast reads from the device: what it put there, and what follows."""

from __future__ import annotations

import functools
from typing import Any

from tests.standin.running import run_program


@functools.cache
def results() -> dict[str, Any]:
    outcome = run_program("forecast_values", "values")
    assert outcome.code == 0, outcome.errors
    return outcome.results


def test_what_is_made_on_the_device_is_read_back() -> None:
    assert results()["made"] == [
        [0, 1, 2, 3],
        [[1, 1], [1, 1]],
        [7, 7],
        [1.5, 2.5],
        [0, 1, 2],
        [0, 1, 2],
        [4, 5],
        [[1, 0], [0, 1]],
        [1, 1],
        3,
    ]


def test_what_was_copied_there_is_as_it_was_then() -> None:
    assert results()["copied"] == [[0, 1, 2]] * 7


def test_what_follows_from_known_values_is_known() -> None:
    assert results()["changed"] == [
        [1, 2, 3, 4],
        [-1, 1, 3, 5],
        [0, 0.5, 1, 1.5],
        [1, 2],
        3,
        [[0, 2], [1, 3]],
        [[column <= row for column in range(4)] for row in range(4)],
        [1, 2, 3, 4],
        10,
        [0, 1, 2, 3, 0],
        [0, 1, 3, 6],
        3,
        1.5,
        True,
        False,
        True,
        [0, 1, 2, 3],
    ]


def test_a_known_number_is_a_number_of_pythons() -> None:
    assert results()["numbers"] == [5, 5.0, [0, 1, 2, 3, 4], 5, True]


def test_a_default_device_still_applies() -> None:
    assert results()["by_default_device"] == [
        ["cuda", [0, 1, 2]],
        ["cuda", [3, 3]],
        ["cuda", [2, 3, 4]],
        ["cuda", [6, 7]],
    ]


def test_random_numbers_weights_and_what_they_go_into_are_not_known() -> None:
    assert results()["computed"] == [False] * 10


def test_a_change_in_place_is_not_overlooked() -> None:
    assert results()["changed_in_place"] == []


def test_what_is_changed_by_known_values_stays_known() -> None:
    assert results()["known_changes"] == [
        [1, 2, 3, 4],
        [0, 1, 0, 0],
        [0, 1, 7, 7],
        [4, 5, 6, 7],
        [8, 9, 2, 3],
        None,
    ]


def test_what_a_replay_computes_again_is_not_known() -> None:
    assert results()["captured"] == [False, True]


def test_several_results_are_known_each() -> None:
    assert results()["tuples"] == [
        [[0, 1, 3], [2, 1, 2, 0], [1, 1, 2]],
        [[0, 1, 3], [1, 1, 2]],
        [[3, 1, 3, 0], [1, 1, 1, 1]],
        [[0, 1, 3, 3], [3, 1, 0, 2]],
        [[3, 3], [0, 2]],
        [3, 0],
        [0, 3],
        [[0, 1, 2]],
        [[0, 2]],
        [[3, 1, 3], [0]],
        [0, 1, 3, 3],
    ]


def test_a_known_mask_selects_as_many_rows_of_what_is_not_known() -> None:
    shapes, gradient, *_ = results()["masked"]
    assert shapes == [[3, 2], [4, 2], [3, 3, 1], [3, 3], [2, 3], [9], [9]]
    assert gradient == [4, 3]


def test_a_mask_that_is_not_known_is_noted() -> None:
    assert results()["masked"][2:] == [[[0, 3], [0]], 0, [["a mask as an index", 2]]]


def test_sizes_that_are_tensors_are_those_known() -> None:
    assert results()["sized"] == [
        [0, 1, 2],
        [2, 3],
        [2],
        [4, 2],
        [2, 4],
        [10, 4],
        [1, 2],
        [5, 6],
        [1, 2, 2, 3, 3, 3],
        [1, 1, 1, 1],
        [True, False],
        "2",
    ]


def test_known_values_are_brought_back_into_memory_of_the_program() -> None:
    assert results()["brought_back"] == [[0, 1, 2, 3], [0, 1, 2, 3], [2, 0]]


def test_one_operand_may_decide() -> None:
    assert results()["decided"] == [[True] * 2, [False] * 2, True, False, False]


def test_what_is_computed_again_has_the_same_rows() -> None:
    assert results()["recomputed"] is True


def test_compilers_and_types_of_their_own_find_pytorch_as_it_is() -> None:
    assert results()["scripted"] == [
        [[3]] * 4,
        ["mean", "sum", "Answering", "Answering", ["add", "__getitem__"]],
        [3],
        True,
    ]


def test_copies_carry_nothing_of_ours() -> None:
    assert results()["copies"] == [[0, 1, 2], {}, {}, True]


def test_a_view_is_forgotten_with_its_base() -> None:
    assert results()["base_of_changed_view"] == [[1, 2, 3], False, [9, 9, 9, 9]]


def test_there_are_as_many_rows_as_known_values_say_and_none_of_others() -> None:
    assert results()["rows"][:9] == [
        [[0], [2], [3]],
        3,
        3,
        [0, 2, 3],
        [1, 3],
        [3, 1],
        True,
        [0, 1],
        [0],
    ]


def test_rows_of_tuples_and_of_masks_as_indices_are_as_many_too() -> None:
    assert results()["rows"][9:] == [3, [2], [3, 3]]


def test_what_is_asked_of_all_elements_holds_unless_it_is_known_not_to() -> None:
    assert results()["asked"] == {
        "finite": True,
        "all": True,
        "known": [False, True, False],
        "sum": True,
        "sum of other": False,
        "known sum": [False, True],
        "any": False,
        "equal": True,
        "shapes": False,
        "allclose": True,
        "method": True,
        "known equal": [False, True],
        "known allclose": [False],
        "host": [False, False],
    }


def test_gradients_are_those_of_any_other_run() -> None:
    assert results()["differentiated"] == [True] * 5


def test_compiled_functions_may_use_what_is_watched() -> None:
    assert results()["traced"] is True


def test_compiled_functions_may_use_it_under_a_default_device() -> None:
    assert results()["traced_by_default"] is True


def test_tensors_of_other_types_stay_what_they_are() -> None:
    assert results()["subclassed"] == ["Parameter", "Tensor", [0, 1], [1, 1], [2, 2]]


def test_what_does_not_count_its_changes_is_not_known() -> None:
    assert results()["inferred"] is False


def test_values_go_with_their_tensor_and_large_ones_are_never_kept() -> None:
    assert results()["kept"] == [True, True, True, False, False]


def test_where_memory_depends_on_unknown_data_is_noted_with_the_programs_own_line() -> None:
    _, own, others = results()["notes"]
    assert own == [["nonzero", 3], ["masked_select", 1], ["nonzero", 1]]
    assert others == []


def test_the_device_is_asked_for_what_it_would_be_asked_for_anyway() -> None:
    plain, watched = (
        run_program("forecast_values", "requests", how).results["events"]
        for how in ("plain", "watched")
    )
    assert len(plain) > 500
    assert watched == plain
