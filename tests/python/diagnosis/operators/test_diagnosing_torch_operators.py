"""What each kind of operator of PyTorch is said to do."""

# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

from operator_traces import record  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402


def flags_of(function: Any) -> list[tuple[str, str]]:
    """What happens to a matrix that a function is given, after it was made."""

    def run() -> None:
        matrix = torch.zeros(2, 3)
        function(matrix)

    return record(run).flags("matrix")[1:]


@pytest.mark.parametrize(
    ("function", "label"),
    [
        (lambda m: m.clone(), "clone"),
        (lambda m: m.t().contiguous(), "clone"),
        (lambda m: m.double(), "_to_copy"),
        (lambda m: torch.ones(2, 3).copy_(m), "copy_"),
        (lambda m: m[0, 0].item(), "_local_scalar_dense"),
    ],
)
def test_copies(function: Any, label: str) -> None:
    def run() -> None:
        matrix = torch.rand(2, 3)
        function(matrix)

    recorded = record(run)
    assert recorded.flags("matrix")[-1] == (label, "R")
    assert ("copy", label) in recorded.apis()


@pytest.mark.parametrize(
    ("function", "label"),
    [
        (lambda: torch.zeros(3), "zeros"),
        (lambda: torch.ones(3), "ones"),
        (lambda: torch.full((3,), 7), "full"),
        (lambda: torch.zeros_like(torch.empty(3)), "zeros_like"),
        (lambda: torch.empty(3).new_ones(2), "new_ones"),
        (lambda: torch.empty(3).zero_(), "zero_"),
        (lambda: torch.empty(3).fill_(2), "fill_"),
    ],
)
def test_sets(function: Any, label: str) -> None:
    assert record(function).apis() == [("set", label)]


def test_a_copy_writes_what_it_is_copied_into() -> None:
    assert flags_of(lambda m: m.copy_(torch.ones(2, 3))) == [("copy_", "W")]


@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.empty(3),
        lambda: torch.empty(3).new_empty(2),
        lambda: torch.empty_like(torch.empty(3)),
        lambda: torch.empty_strided((2, 2), (2, 1)),
    ],
)
def test_empty_tensors_are_allocated_only(function: Any) -> None:
    recorded = record(function)
    assert recorded.apis() == []
    assert {kind for kind, _ in recorded.apis(with_memory=True)} == {"alloc", "free"}


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.view(3, 2),
        lambda m: m.reshape(6),
        lambda m: m.t()[1:].unsqueeze(0).expand(4, 2, 2),
        lambda m: m.detach(),
        lambda m: m.split(1),
        lambda m: m.unbind(),
        lambda m: torch.ops.aten._unsafe_view(m, [6]),  # noqa: SLF001
        lambda m: m.unsqueeze_(0),
        lambda m: m.to(torch.float32),
        lambda m: m.contiguous(),
        lambda m: m.is_same_size(m),
        torch.empty_like,
        torch.zeros_like,
    ],
)
def test_what_looks_at_no_content_accesses_nothing(function: Any) -> None:
    assert flags_of(function) == []


def test_a_reshape_that_copies_reads() -> None:
    assert flags_of(lambda m: m.t().reshape(6)) == [("clone", "R")]


def test_an_operator_in_place_reads_and_writes() -> None:
    assert flags_of(lambda m: m.add_(1)) == [("add_", "R"), ("add_", "W")]


def test_what_is_given_as_out_is_written_only() -> None:
    assert flags_of(lambda m: torch.add(torch.ones(2, 3), 1, out=m)) == [("add", "W")]


def test_out_that_is_read_as_well_is_both() -> None:
    assert flags_of(lambda m: torch.add(m, m, out=m)) == [("add", "R"), ("add", "W")]


@pytest.mark.parametrize("name", ["uniform_", "normal_", "random_", "bernoulli_"])
def test_random_numbers_in_place_are_written_only(name: str) -> None:
    assert flags_of(lambda m: getattr(m, name)()) == [(name, "W")]


def test_random_tensors_are_written() -> None:
    def run() -> None:
        noise = torch.randn(3)
        del noise

    assert record(run).flags("noise") == [("randn", "W")]


def test_every_output_is_an_object() -> None:
    def run() -> None:
        matrix = torch.zeros(4, 3)
        found = torch.var_mean(matrix, dim=0)
        del found

    recorded = record(run)
    assert recorded.trace.names.count("found") == 2
    assert recorded.flags("matrix")[-1] == ("var_mean", "R")


def test_lists_of_tensors() -> None:
    def run() -> None:
        first, second = torch.zeros(2), torch.zeros(3)
        both = torch.cat([first, second])
        torch._foreach_add_([both], 1.0)

    recorded = record(run)
    assert recorded.flags("both") == [("cat", "W"), ("_foreach_add_", "R"), ("_foreach_add_", "W")]


def test_a_fused_optimizer_reads_and_writes_its_lists() -> None:
    weight = torch.ones(4, requires_grad=True)
    weight.grad = torch.ones(4)
    optimizer = torch.optim.AdamW([weight], fused=True)
    recorded = record(optimizer.step)
    labels = dict.fromkeys(label for _, label in recorded.apis())
    assert "_fused_adamw_" in labels
    gradient = recorded.flags("gradient")
    assert ("_fused_adamw_", "R") in gradient


def test_what_foreach_copies_into_is_written_only() -> None:
    assert flags_of(lambda m: torch._foreach_copy_([m], [torch.ones(2, 3)])) == [
        ("_foreach_copy_", "W")
    ]


@torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]
def test_inference_mode_shows_the_same_operators() -> None:
    def run() -> None:
        matrix = torch.zeros(2, 3)
        matrix.t().reshape(6)
        matrix.flatten()
        matrix.to(torch.float64)
        torch.matmul(matrix, matrix.t())

    flags = record(run).flags("matrix")
    assert flags == [("zeros", "W"), ("clone", "R"), ("_to_copy", "R"), ("mm", "R")]


def test_a_sparse_tensor_is_its_parts() -> None:
    def run() -> None:
        matrix = torch.eye(3)
        sparse = matrix.to_sparse()
        product = sparse @ matrix
        del product

    recorded = record(run)
    assert sum("for sparse" in name for name in recorded.trace.names) == 2
    assert recorded.flags("matrix")[-1] == ("mm", "R")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_compressed_rows_are_three_parts() -> None:
    def run() -> None:
        sparse = torch.eye(3).to_sparse_csr()
        sparse.sum()

    assert sum("for sparse" in name for name in record(run).trace.names) >= 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_its_buffer() -> None:
    def run() -> None:
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        doubled = nested * 2
        del doubled

    assert record(run).flags("doubled") == [("mul", "W")]


TENSOR: Any = torch.Tensor


class Wrapped(TENSOR):
    """A tensor around another, as DTensor is."""

    inner: Any

    @staticmethod
    def __new__(cls: Any, inner: Any) -> Any:
        make = torch.Tensor._make_wrapper_subclass  # noqa: SLF001 (its only name)
        return make(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(value: Any) -> Any:
            return value.inner if isinstance(value, cls) else value

        result = func(*pytree.tree_map(unwrap, args), **pytree.tree_map(unwrap, kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


def test_a_subclass_is_what_it_wraps() -> None:
    def run() -> None:
        inner = torch.zeros(3)
        wrapped = Wrapped(inner)
        torch.add(wrapped, 1)

    assert record(run).flags("inner")[-1] == ("add", "R")


def test_fake_tensors_are_objects_of_their_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run() -> None:
        weight = torch.zeros(1 << 20, 1 << 20)
        torch.nn.functional.embedding(torch.zeros(4, dtype=torch.int64), weight)

    with FakeTensorMode():
        trace = record(run).trace
    sizes = dict(zip(trace.names, trace.objects["size_bytes"].tolist(), strict=True))
    assert sizes["weight"] == 1 << 42


def test_meta_tensors_have_no_memory() -> None:
    def run() -> None:
        real = torch.zeros(2)
        (torch.zeros(1 << 40, device="meta") + 1).sum()
        del real

    assert record(run).trace.names == ("real",)


def test_a_tensor_made_from_a_list_arrives_written() -> None:
    def run() -> None:
        made = torch.tensor([1.0, 2.0])
        made.sum()

    recorded = record(run)
    assert recorded.flags("made") == [("from outside", "W"), ("sum", "R")]


def test_a_control_flow_operator_touches_what_it_is_given() -> None:
    from torch._higher_order_ops.cond import cond_op

    def run() -> None:
        matrix = torch.zeros(2, 3)
        cond_op(torch.tensor(True), lambda m: m + 1, lambda m: m - 1, (matrix,))  # noqa: FBT003

    assert record(run).flags("matrix")[-1] == ("cond", "T")


def test_an_operator_of_one_s_own_follows_its_schema() -> None:
    library = torch.library.Library("gmlake_test", "FRAGMENT")
    library.define("accumulate(Tensor(a!) self, Tensor other) -> ()")
    library.impl("accumulate", lambda *_given: None, "CPU")

    def run() -> None:
        matrix, other = torch.zeros(2), torch.ones(2)
        torch.ops.gmlake_test.accumulate(matrix, other)

    recorded = record(run)
    assert ("kernel", "gmlake_test.accumulate") in recorded.apis()
    accesses = recorded.trace.accesses["flags"].tolist()
    assert accesses[-3:] == [1, 1, 2]
    library._destroy()  # noqa: SLF001 (its only name)


def test_a_name_is_that_of_what_the_line_makes_last() -> None:
    def run() -> None:
        plain = torch.ones(4, 4)
        product = plain @ plain
        loss = torch.nn.functional.cross_entropy(product, torch.zeros(4, dtype=torch.long))
        del loss

    names = record(run).trace.names
    assert {"plain", "product"} <= set(names)
    assert "loss" not in names
    assert "_log_softmax [4x4 float32] for loss" in names
