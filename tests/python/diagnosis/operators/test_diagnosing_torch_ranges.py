"""Which bytes each operator of PyTorch is said to access."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

from operator_traces import Recorded, Seen, record  # noqa: E402

SIX = (1,) * 6


def last(recorded: Recorded, name: str = "matrix") -> Seen:
    return recorded.accesses(name)[-1]


def matrix_in(function: Any, *shape: int, **options: Any) -> Seen:
    """The last access to a matrix of zeros that a function is given."""

    def run() -> None:
        matrix = torch.zeros(*(shape or (2, 3)))
        function(matrix)

    return last(record(run, **options))


# ---- views --------------------------------------------------------------------------------------


def test_a_whole_tensor_is_the_whole_object() -> None:
    seen = matrix_in(lambda matrix: matrix.sum())
    assert (seen.flag, seen.counts) == ("R", SIX)


def test_a_slice_of_rows_is_its_rows() -> None:
    assert matrix_in(lambda matrix: matrix[1:].sum()).counts == (0, 0, 0, 1, 1, 1)


def test_a_column_is_strided() -> None:
    assert matrix_in(lambda matrix: matrix[:, 1].sum()).counts == (0, 1, 0, 0, 1, 0)


def test_two_columns_are_runs_of_two() -> None:
    assert matrix_in(lambda matrix: matrix[:, 1:].sum()).counts == (0, 1, 1, 0, 1, 1)


def test_a_transposed_matrix_is_whole() -> None:
    assert matrix_in(lambda matrix: matrix.t().sum()).counts == SIX


def test_every_second_element() -> None:
    assert matrix_in(lambda vector: vector[::2].sum(), 5).counts == (1, 0, 1, 0, 1)


def test_a_block_of_three_levels_is_several_runs() -> None:
    counts = matrix_in(lambda cube: cube[:, ::2, ::2].sum(), 2, 3, 3).counts
    plane = (1, 0, 1, 0, 0, 0, 1, 0, 1)
    assert counts == plane + plane


def test_an_expanded_view_reads_each_element_often() -> None:
    assert matrix_in(lambda matrix: matrix[0].expand(5, 3).clone()).counts == (5, 5, 5, 0, 0, 0)


def test_a_view_of_as_many_elements_may_cover_fewer() -> None:
    assert matrix_in(lambda matrix: matrix[0].expand(2, 3).clone()).counts == (2, 2, 2, 0, 0, 0)


def test_an_empty_slice_is_no_access() -> None:
    def run() -> None:
        matrix = torch.zeros(2, 3)
        matrix[2:].add_(1)

    assert record(run).flags("matrix") == [("zeros", "W")]


def test_a_view_of_another_type_covers_its_bytes() -> None:
    seen = matrix_in(lambda matrix: matrix.view(torch.int16)[0, :2].sum())
    assert seen.counts == (1, 0, 0, 0, 0, 0)


def test_a_slice_that_is_written_is_its_slice() -> None:
    seen = matrix_in(lambda matrix: matrix[1].fill_(3))
    assert (seen.kind, seen.flag, seen.counts) == ("set", "W", (0, 0, 0, 1, 1, 1))


def scattered(cube: Any) -> Any:
    return cube[::2, ::2, ::2, ::2]


def test_a_read_of_too_many_runs_is_widened() -> None:
    seen = matrix_in(lambda cube: scattered(cube).sum(), 33, 33, 33, 3)
    assert seen.flag == "R"
    assert set(seen.counts) == {1}


def test_a_write_of_too_many_runs_claims_nothing() -> None:
    seen = matrix_in(lambda cube: scattered(cube).zero_(), 33, 33, 33, 3)
    assert seen.flag == "T"


def test_windows_that_overlap_are_their_union() -> None:
    seen = matrix_in(lambda vector: vector.unfold(0, 3, 1)[:2].clone(), 6)
    assert (seen.flag, seen.counts) == ("R", (1, 1, 1, 1, 0, 0))


# ---- indices ------------------------------------------------------------------------------------


def embed(table: Any) -> Any:
    return torch.nn.functional.embedding(torch.tensor([[2, 0], [2, 2]]), table)


def test_an_embedding_reads_its_rows_as_often_as_asked() -> None:
    seen = matrix_in(embed, 4, 2)
    assert (seen.label, seen.flag) == ("embedding", "R")
    assert seen.counts == (1, 1, 0, 0, 3, 3, 0, 0)


def test_rows_that_follow_each_other_are_one_run() -> None:
    recorded = record(
        lambda: torch.nn.functional.embedding(torch.arange(1, 900), torch.zeros(1000, 2))
    )
    assert recorded.trace.ranges.tolist() == [(8, 899 * 8, 899 * 8, 1, 1)]


def test_an_embedding_bag_reads_its_rows() -> None:
    def bag(table: Any) -> Any:
        return torch.nn.functional.embedding_bag(
            torch.tensor([3, 0, 3]), table, torch.tensor([0, 2])
        )

    assert matrix_in(bag, 4, 1).counts == (1, 0, 0, 2)


@pytest.mark.parametrize(
    ("function", "flag", "counts"),
    [
        (lambda m: m.index_select(0, torch.tensor([1])), "R", (0, 0, 0, 1, 1, 1)),
        (lambda m: m.index_select(1, torch.tensor([2, 2])), "R", (0, 0, 2, 0, 0, 2)),
        (lambda m: m[torch.tensor([-1])], "R", (0, 0, 0, 1, 1, 1)),
        (lambda m: m[torch.tensor([0, 1, 1])], "R", (1, 1, 1, 2, 2, 2)),
        (lambda m: m[:, torch.tensor([0, 2])], "R", (1, 0, 1, 1, 0, 1)),
        (lambda m: m[torch.tensor([0, 1]), torch.tensor([1, 2])], "R", (0, 1, 0, 0, 0, 1)),
        (lambda m: m[torch.tensor([[True, False, True]] * 2)], "R", (1, 0, 1, 1, 0, 1)),
        (lambda m: m[torch.tensor([False, True])], "R", (0, 0, 0, 1, 1, 1)),
        (lambda m: m.gather(1, torch.tensor([[0, 0], [2, 1]])), "R", (2, 0, 0, 0, 1, 1)),
        (lambda m: m.take(torch.tensor([5, 5])), "R", (0, 0, 0, 0, 0, 2)),
        (lambda m: m.index_fill_(0, torch.tensor([0]), 1.0), "W", (1, 1, 1, 0, 0, 0)),
        (
            lambda m: m.index_copy_(0, torch.tensor([1]), torch.ones(1, 3)),
            "W",
            (0, 0, 0, 1, 1, 1),
        ),
        (lambda m: m.scatter_(1, torch.tensor([[0], [2]]), 1.0), "W", (1, 0, 0, 0, 0, 1)),
        (lambda m: m.put_(torch.tensor([4]), torch.ones(1)), "W", (0, 0, 0, 0, 1, 0)),
        (lambda m: m.__setitem__(torch.tensor([1]), 2.0), "W", (0, 0, 0, 1, 1, 1)),
        (lambda m: m[1:][:, torch.tensor([0])], "R", (0, 0, 0, 1, 0, 0)),
    ],
)
def test_indices_say_which_elements(function: Any, flag: str, counts: tuple[int, ...]) -> None:
    seen = matrix_in(function)
    assert (seen.flag, seen.counts) == (flag, counts)


@pytest.mark.parametrize(
    ("function", "counts"),
    [
        (
            lambda m: m.index_add_(0, torch.tensor([1, 1]), torch.ones(2, 3)),
            (0, 0, 0, 2, 2, 2),
        ),
        (
            lambda m: m.scatter_add_(1, torch.tensor([[0], [2]]), torch.ones(2, 1)),
            (1, 0, 0, 0, 0, 1),
        ),
        (
            lambda m: m.scatter_(1, torch.tensor([[0], [2]]), 1.0, reduce="add"),
            (1, 0, 0, 0, 0, 1),
        ),
        (
            lambda m: m.index_put_((torch.tensor([0]),), torch.ones(3), accumulate=True),
            (1, 1, 1, 0, 0, 0),
        ),
    ],
)
def test_what_adds_to_rows_reads_and_writes_them(function: Any, counts: tuple[int, ...]) -> None:
    def run() -> None:
        matrix = torch.zeros(2, 3)
        function(matrix)

    both = record(run).accesses("matrix")[-2:]
    assert [(seen.flag, seen.counts) for seen in both] == [("R", counts), ("W", counts)]


def test_the_indices_are_read_whole() -> None:
    def run() -> None:
        chosen = torch.zeros(3, dtype=torch.int64)
        torch.zeros(2, 2).index_select(0, chosen)

    assert last(record(run), "chosen").counts == (1, 1, 1)


def test_a_tensor_that_is_its_own_indices_is_read_whole() -> None:
    def run() -> None:
        parent = torch.tensor([1, 1, 1])
        parent[parent].sum()
        parent.gather(0, parent).sum()

    for seen in record(run).accesses("parent")[1:]:
        assert seen.flag == "R"
        assert all(seen.counts)


def test_unread_indices_mean_the_whole_table() -> None:
    seen = matrix_in(embed, 4, 2, indices="never")
    assert (seen.flag, set(seen.counts)) == ("R", {1})


def test_a_write_by_unread_indices_claims_nothing() -> None:
    seen = matrix_in(lambda m: m.index_fill_(0, torch.tensor([0]), 1.0), indices="never")
    assert (seen.flag, seen.counts) == ("T", SIX)


def test_indices_of_a_cpu_are_read_where_a_gpu_s_are_not() -> None:
    assert matrix_in(embed, 4, 2, indices="cpu only").counts == (1, 1, 0, 0, 3, 3, 0, 0)


def test_no_index_is_no_access() -> None:
    def run() -> None:
        matrix = torch.zeros(2, 3)
        matrix.index_select(0, torch.zeros(0, dtype=torch.int64))

    assert record(run).flags("matrix") == [("zeros", "W")]
