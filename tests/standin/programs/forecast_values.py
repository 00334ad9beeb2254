"""What a program that is forecast reads from the device, as JSON: each function below by its name.

`values` installs the answers and runs them all; `requests` prints what a model asks the allocator
for, with the answers or, with the word `plain`, without.
"""

# mypy: allow-untyped-calls

# What the allocator did has private names only.
# ruff: noqa: SLF001

from __future__ import annotations

import gc
import json
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gmlake.standin import answers, values

if TYPE_CHECKING:
    from collections.abc import Callable


def ours(*of: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return numbers on the device."""
    return torch.tensor(list(of), dtype=dtype).to("cuda")


def known(tensor: torch.Tensor) -> Any:
    with torch._C.DisableTorchFunction():  # it is asked from within a mode
        return values.known(tensor)


def is_known(tensor: torch.Tensor) -> bool:
    return known(tensor) is not None


# ---- what is known


def made() -> Any:
    """What is made on the device, and copied there."""
    return [
        torch.arange(4, device="cuda").tolist(),
        torch.ones(2, 2, device="cuda").tolist(),
        torch.full((2,), 7, device="cuda").tolist(),
        torch.tensor([1.5, 2.5], device="cuda").tolist(),
        torch.arange(3).cuda().tolist(),
        torch.arange(3).to("cuda:0").tolist(),
        torch.as_tensor([4, 5], device=torch.device("cuda")).cpu().tolist(),
        torch.eye(2, device="cuda").tolist(),
        torch.ones_like(torch.zeros(2, device="cuda")).tolist(),
        int(torch.linspace(0, 1, 3, device="cuda").sum() * 2),
    ]


def copied() -> Any:
    """What was copied there is as it was then, whatever ran since."""
    host = torch.arange(3)
    there = [host.cuda(), host.to("cuda"), host.to(0), host.to(torch.device("cuda", 0)).float()]
    there += [torch.as_tensor(host, device="cuda"), host.to(ours(1)), host.cuda(non_blocking=True)]
    torch.randn(9, device="cuda")  # a kernel
    host.fill_(9)
    back = there[0].cpu()
    back.fill_(8)
    return [each.tolist() for each in there]


def changed() -> Any:
    """What follows from it: arithmetic, shapes, types, slices, broadcasting."""
    row = torch.arange(4, device="cuda")
    column = row[:, None]
    causal = row[None, :] <= column
    return [
        (row + 1).tolist(),
        (2 * row - 1).tolist(),
        (row.float() / 2).tolist(),
        row[1:3].tolist(),
        row[-1].item(),
        row.view(2, 2).t().tolist(),
        causal.tolist(),
        causal.sum(dim=1).tolist(),
        torch.where(causal, 1, 0).sum().item(),
        torch.cat([row, row[:1]]).tolist(),
        torch.cumsum(row, 0).tolist(),
        row.max().item(),
        float(row.float().mean()),
        (row == 2).any().item(),
        bool((row > 5).any()),
        row.to(torch.int32).dtype == torch.int32,
        row.numpy(force=True).tolist() if hasattr(row, "numpy") else None,
    ]


def numbers() -> Any:
    """A number of the device as a number of Python's."""
    length = ours(3, 5, 4).max()
    return [int(length), float(length), list(range(length)), length.item(), bool(length > 4)]


def by_default_device() -> Any:
    """What is made where a default device is set."""
    with torch.device("cuda"):
        within = torch.arange(3)
        scaled = torch.ones(2) * 3
    torch.set_default_device("cuda")
    try:
        after = torch.arange(2, 5)
        counted = torch.tensor([6, 7])
    finally:
        torch.set_default_device(None)
    return [[each.device.type, each.tolist()] for each in (within, scaled, after, counted)]


def computed() -> Any:
    """Random numbers, weights and what they go into are not known."""
    weights = nn.Linear(2, 2).cuda()
    rows = torch.randn(2, 2, device="cuda")
    copied = torch.randn(2, 2).cuda()
    return [
        is_known(each)
        for each in (
            rows,
            torch.randint(0, 9, (3,), device="cuda"),
            torch.randperm(4, device="cuda"),
            weights.weight,
            weights(torch.ones(2, 2, device="cuda")),
            rows + torch.ones(2, 2, device="cuda"),
            torch.matmul(torch.ones(2, 2, device="cuda"), copied),
            torch.empty(4, device="cuda"),
            torch.bernoulli(torch.ones(4, device="cuda")),
            nn.functional.dropout(torch.ones(4, device="cuda")),
        )
    ]


def changed_in_place() -> Any:
    """Which of the ways to change a tensor in place leave it known with its old values."""
    ways: dict[str, Callable[[torch.Tensor], object]] = {
        "item": lambda of: of.__setitem__(0, 9),
        "add": lambda of: of.add_(1),
        "fill": lambda of: of.fill_(9),
        "zero": lambda of: of.zero_(),
        "random": lambda of: of.random_(),
        "copy": lambda of: of.copy_(torch.zeros(4, dtype=torch.long)),
        "view": lambda of: of[1:].fill_(9),
        "reshaped": lambda of: of.view(2, 2).add_(1),
        "iadd": lambda of: of.__iadd__(1),
        "out": lambda of: torch.add(of, 1, out=of),
        "masked": lambda of: of.masked_fill_(of > 1, 0),
        "data": lambda of: of.data.fill_(9),
        "detached": lambda of: of.detach().fill_(9),
    }
    left = []
    for name, change in ways.items():
        tensor = torch.arange(4, device="cuda")
        change(tensor)
        if tensor.tolist() == [0, 1, 2, 3]:
            left.append(name)
    return left


def base_of_changed_view() -> Any:
    """A view that was taken before its base changed."""
    base = torch.arange(4, device="cuda")
    view = base[1:]
    before = view.tolist()
    base.fill_(9)
    return [before, is_known(view), base.tolist()]


# ---- what depends on data


def rows() -> Any:
    """As many rows as known values say, none of what is not known."""
    mask = ours(1, 0, 1, 1, dtype=torch.bool)
    data = torch.randn(4, 3, device="cuda")
    unknown = torch.randn(4, device="cuda") > 0
    return [
        mask.nonzero().tolist(),
        torch.nonzero(mask).shape[0],
        torch.argwhere(mask).shape[0],
        torch.masked_select(torch.arange(4, device="cuda"), mask).tolist(),
        torch.unique(ours(3, 1, 3)).tolist(),
        ours(3, 3, 1).unique_consecutive().tolist(),
        mask.nonzero().is_cuda,
        list(unknown.nonzero().shape),
        list(data[data > 0].shape),
        len(torch.nonzero(mask, as_tuple=True)[0]),
        list(torch.unique(ours(3, 1, 3), return_counts=True)[0].shape),
        list(data[mask].shape),
    ]


# ---- what is asked of all elements


def asked() -> Any:
    """Answers of what is not known hold; those of what is known are as they are."""
    data = torch.randn(4, device="cuda")
    mask = data > 0
    zeros, ones = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
    return {
        "finite": bool(torch.isfinite(data).all()),
        "all": mask.all().item(),
        "known": [bool(ours(1, 0).all()), bool(ours(1, 1).all()), ours(0, 0).bool().all().item()],
        "sum": bool(mask.sum() == mask.numel()),
        "sum of other": bool(mask.sum() == 3),
        "known sum": [bool(ours(1, 0).sum() == 2), bool(ours(1, 1).sum() == 2)],
        "any": bool(torch.isnan(data).any()),
        "equal": torch.equal(data, data + 1),
        "shapes": torch.equal(data, torch.randn(3, device="cuda")),
        "allclose": torch.allclose(data, data + 1),
        "method": data.allclose(data * 2) and data.equal(data * 2),
        "known equal": [torch.equal(zeros, ones), torch.equal(zeros, zeros + 0)],
        "known allclose": [torch.allclose(zeros, ones)],
        "host": [torch.equal(torch.zeros(2), torch.ones(2)), bool(torch.zeros(2).all())],
    }


# ---- that nothing else changes


def differentiated() -> Any:
    """Gradients of functions that are watched."""
    weight = torch.ones(3, device="cuda", requires_grad=True)
    leaf = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    made = (weight.clone() * torch.arange(3, device="cuda")).sum()
    made.backward()
    leaf.mul(2).sum().backward()
    host = torch.ones(2, requires_grad=True)
    (host.cuda() * 2).sum().cpu().backward()
    return [
        weight.is_leaf,
        weight.grad is not None and list(weight.grad.shape) == [3],
        leaf.is_leaf and leaf.requires_grad and leaf.grad is not None,
        made.requires_grad and made.grad_fn is not None,
        host.grad is not None,
    ]


def traced(device: str | None = None) -> Any:
    """Functions that torch.compile traces."""
    torch.set_default_device(device)

    @torch.compile(backend="eager", fullgraph=True)
    def step(rows: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(4, device="cuda") < 2
        return torch.where(mask, rows * 2, torch.zeros_like(rows)).sum()

    rows = torch.ones(4, device="cuda", requires_grad=True)
    try:
        step(rows).backward()
    finally:
        torch.set_default_device(None)
    return rows.grad is not None


def traced_by_default() -> Any:
    """The same where a default device is set."""
    return traced("cuda")


def subclassed() -> Any:
    """Parameters and tensors of other types stay what they are."""
    parameter = nn.Parameter(torch.ones(2, device="cuda"))
    buffer = nn.Buffer(torch.arange(2, device="cuda"))
    return [
        type(parameter.to("cuda")).__name__,
        type(parameter.cpu()).__name__,
        buffer.tolist(),
        torch.ones(2).tolist(),
        (torch.ones(2) + 1).tolist(),
    ]


def inferred() -> Any:
    """Within inference mode, where tensors do not count their changes."""
    with torch.inference_mode():
        tensor = torch.arange(3, device="cuda")
        tensor.add_(1)
        return is_known(tensor)


# ---- what is kept


def kept() -> Any:
    """Values go with their tensor; those of large ones are never kept."""
    tensor = torch.arange(8, device="cuda")
    held = weakref.ref(known(tensor))
    is_there = held() is not None
    del tensor
    gc.collect()
    limit = values.MOST_ELEMENTS
    return [
        is_there,
        held() is None,
        is_known(torch.ones(limit, device="cuda")),
        is_known(torch.ones(limit + 1, device="cuda")),
        is_known(torch.ones(2, device="cuda").expand(limit, 2)),
    ]


def notes() -> Any:
    """Where the program asked for what depends on data."""
    data = torch.randn(4, device="cuda")
    before = len(answers.given())
    for _ in range(3):
        data.nonzero()
    torch.masked_select(data, data > 0)
    torch.nonzero(data, as_tuple=True)
    ours(1, 0).nonzero()
    torch.randn(4).nonzero()
    return (
        before,
        [
            [each["function"], each["count"]]
            for each in answers.given()
            if each["line"] >= notes.__code__.co_firstlineno and each["file"] == __file__
        ],
        [each["file"] for each in answers.given() if each["file"] != __file__],
    )


def run_all() -> None:
    """Print what each of them returns, or how it ended."""
    answers.install()
    found = {}
    names = (
        *(
            "made",
            "copied",
            "changed",
            "numbers",
            "by_default_device",
            "computed",
            "changed_in_place",
        ),
        *("base_of_changed_view", "rows", "asked", "differentiated", "traced", "subclassed"),
        *("traced_by_default",),
        *("inferred", "kept", "notes"),
    )
    for name in names:
        try:
            found[name] = globals()[name]()
        except Exception as error:  # noqa: BLE001 (the test sees it)
            found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


# ---- requests


def requests(how: str = "") -> None:
    """Print what a small model with masks and lengths asks of the allocator."""
    if how != "plain":
        answers.install()
    torch.manual_seed(0)
    model: Any = nn.ModuleDict(
        {"words": nn.Embedding(64, 32), "layer": nn.TransformerEncoderLayer(32, 2, 64)}
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    for _ in range(2):
        words = torch.randint(0, 64, (12, 4)).cuda()
        lengths = torch.tensor([12, 9, 7, 3]).cuda()
        padding = torch.arange(12, device="cuda")[None, :] >= lengths[:, None]
        causal = torch.ones(12, 12, device="cuda", dtype=torch.bool).triu(1)
        positions = torch.cumsum((~padding).long(), 1).clamp(min=1) - 1
        hidden = model["words"](words) + positions.t()[:, :, None]
        hidden = model["layer"](hidden, src_mask=causal, src_key_padding_mask=padding)
        loss = hidden.masked_fill(padding.t()[:, :, None], 0).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        int(lengths.max())
        bool(padding.any())
        del hidden, loss
    recorded: Any = torch.cuda.memory._snapshot()
    events = [[each["action"], each["size"]] for each in recorded["device_traces"][0]]
    print(json.dumps({"events": events}))


if sys.argv[1] == "values":
    run_all()
else:
    requests(*sys.argv[2:])
