"""What operators are said to access against what they do access, by changing everything else."""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

from operator_traces import record  # noqa: E402

ELEMENTS = 64
ROWS, COLUMNS = torch.tensor([2, 0, -1, 2]), torch.tensor([[1], [4], [0], [2]])
MASK = torch.arange(20).view(4, 5) % 3 == 0
VIEWS = {
    "dense": ((4, 5), (5, 1), 3),
    "padded": ((4, 5), (7, 1), 2),
    "transposed": ((4, 5), (1, 4), 9),
    "sparse": ((4, 5), (15, 3), 1),
    "columns": ((4, 5), (2, 12), 0),
    "apart": ((4, 5), (1, 13), 4),
}
OPERATORS = {
    "sum": lambda m: m.sum(1),
    "clone": lambda m: m.clone(),
    "double": lambda m: m.double(),
    "mm": lambda m: m @ m.t(),
    "where": lambda m: torch.where(MASK, m, 0.0),
    "cat": lambda m: torch.cat([m, m[1:]]),
    "slice": lambda m: m[1:3, ::2].exp(),
    "expand": lambda m: m[:1].expand(3, 5) + 1,
    "softmax": lambda m: m.softmax(0),
    "rows": lambda m: m[ROWS],
    "columns": lambda m: m[:, ROWS],
    "places": lambda m: m[ROWS, COLUMNS[:, 0]],
    "apart": lambda m: m[ROWS, :][:, 0],
    "mask": lambda m: m[MASK],
    "index_select": lambda m: m.index_select(1, ROWS[:2]),
    "gather": lambda m: m.gather(1, COLUMNS),
    "embedding": lambda m: torch.nn.functional.embedding(ROWS[:2], m),
    "take": lambda m: m.take(COLUMNS),
    "add_": lambda m: m.add_(1),
    "zero_": lambda m: m.zero_(),
    "fill_": lambda m: m[:, 1:].fill_(3),
    "copy_": lambda m: m.copy_(torch.ones(4, 5)),
    "copy row": lambda m: m[0].copy_(m[1]),
    "out": lambda m: torch.add(torch.ones(4, 5), 1, out=m),
    "masked_fill_": lambda m: m.masked_fill_(MASK, 2.0),
    "index_put_": lambda m: m.index_put_((ROWS[:2],), torch.tensor(4.0)),
    "index_put_ more": lambda m: m.index_put_((ROWS,), torch.tensor(4.0), accumulate=True),
    "index_fill_": lambda m: m.index_fill_(1, ROWS[:2], 5.0),
    "index_copy_": lambda m: m.index_copy_(0, ROWS[:2], torch.ones(2, 5)),
    "index_add_": lambda m: m.index_add_(0, ROWS.abs(), torch.ones(4, 5)),
    "scatter_": lambda m: m.scatter_(1, COLUMNS, 6.0),
    "scatter_add_": lambda m: m.scatter_add_(1, COLUMNS, torch.ones(4, 1)),
    "put_": lambda m: m.put_(torch.tensor([3, -1]), torch.ones(2)),
    "tolist": lambda m: torch.tensor(m.tolist()),
    "numpy": lambda m: torch.tensor(m.numpy().copy()),
    "apply_": lambda m: m.apply_(lambda value: value + 1),
    "map_": lambda m: m.map_(torch.ones(4, 5), lambda one, other: one + other),
    "dlpack": lambda m: torch.from_dlpack(m) + 1,
    "statistics": lambda m: torch.nn.functional.batch_norm(
        torch.arange(20.0).view(4, 5), m[0], m[1], training=True
    ),
    "foreach": lambda m: torch._foreach_mul_([m[0], m[2]], 2.0),
    "foreach copy": lambda m: torch._foreach_copy_([m[3]], [torch.ones(5)]),
}


def run(view: str, operator: str, content: Any) -> tuple[Any, Any]:
    """What an operator returns, if that is not its argument, and what it leaves behind."""
    base = content.clone()
    result = OPERATORS[operator](base.as_strided(*VIEWS[view]))
    is_same = not isinstance(result, torch.Tensor) or (
        result.untyped_storage()._cdata == base.untyped_storage()._cdata  # noqa: SLF001
    )
    return None if is_same else result, base


def said(view: str, operator: str, content: Any) -> dict[str, Any]:
    """Whether each element is said to be read, written, or touched."""
    recorded = record(lambda: run(view, operator, content))
    masks = {flag: torch.zeros(ELEMENTS, dtype=torch.bool) for flag in "RWT"}
    for seen in recorded.accesses("base")[1:]:
        masks[seen.flag] |= torch.tensor(seen.counts) > 0
    return masks


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("view", VIEWS)
def test_what_is_said_is_what_happens(view: str, operator: str) -> None:
    generator = torch.Generator().manual_seed(7)
    content = torch.rand(ELEMENTS, generator=generator)
    other = torch.rand(ELEMENTS, generator=generator)
    masks = said(view, operator, content)
    result, after = run(view, operator, content)
    # What changed was said to be written.
    assert not ((after != content) & ~(masks["W"] | masks["T"])).any()
    # What was said to be written does not depend on what was there, unless that was read.
    is_read = masks["R"] | masks["T"]
    unread = torch.where(is_read, content, other)
    result_of_other, after_other = run(view, operator, unread)
    assert torch.equal(after[masks["W"]], after_other[masks["W"]])
    # What was not said to be read changes no result.
    assert result is None or torch.equal(result, result_of_other)
