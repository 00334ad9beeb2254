"""Prints the shapes that data decide, of what a program knows; on the CPU or on a device."""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.nn import functional

DEVICE = sys.argv[1]
shapes: list[Any] = []


def see(*seen: Any) -> None:
    shapes.append([list(x.shape) if isinstance(x, torch.Tensor) else x for x in seen])


def edges(nodes: int, count: int) -> None:
    """A graph: its own loops go, edges are sorted, neighbours counted, each node repeated."""
    made = torch.randint(0, nodes, (2, count), generator=torch.Generator().manual_seed(nodes))
    edge = made.to(DEVICE)
    edge = edge[:, edge[0] != edge[1]]
    order = torch.argsort(edge[0], stable=True)
    edge = edge[:, order]
    degree = torch.zeros(nodes, dtype=torch.long, device=DEVICE)
    degree.scatter_add_(0, edge[0], torch.ones_like(edge[0]))
    several = (degree > 5).nonzero().squeeze(1)
    both = torch.cat([edge, edge.flip(0)], 1)
    features = torch.randn(nodes, 8, device=DEVICE)
    see(edge, several, torch.unique(both, dim=1), degree.max().item())
    see(torch.repeat_interleave(features, degree, dim=0), features[degree > degree.float().mean()])
    see(edge.to("meta").device.type, degree.to(device="meta").device.type, degree.cpu().device.type)
    first = int(torch.bincount(edge[1], minlength=nodes)[0])
    see(*torch.split(features, [first, nodes - first]))


def sequences() -> None:
    """Packed text: lengths, masks, places of tokens, what is left out."""
    lengths = torch.tensor([5, 17, 3, 40]).to(DEVICE)
    mask = torch.arange(40, device=DEVICE)[None] < lengths[:, None]
    tokens = torch.randint(0, 100, (4, 40), device=DEVICE)
    tokens.masked_fill_(~mask, -1)
    bounds = functional.pad(lengths.cumsum(0), (1, 0))
    see(tokens[mask], mask.nonzero(), tokens.masked_select(mask), int(bounds[-1]))
    see(*[tokens[i, :n] for i, n in enumerate(lengths.tolist())])
    see(torch.where(mask)[0], torch.unique(lengths, return_inverse=True)[1])
    if torch.is_inference_mode_enabled():  # where a view does not say whose it is
        return
    labels = torch.full_like(tokens, -100)
    labels[:, 3:][mask[:, 3:]] = 1
    see(labels[labels != -100])
    labels[0].fill_(7)
    see((labels == 7).nonzero(), bool((labels[0] == 7).all()))


def experts() -> None:
    """Routing by scores that are given."""
    scores = torch.rand(300, 8, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    _, chosen = scores.softmax(-1).topk(2, dim=-1)
    hot = functional.one_hot(chosen, 8).permute(2, 1, 0)
    see(*[torch.where(hot[expert])[1] for expert in range(8)])
    counts = torch.bincount(chosen.flatten(), minlength=8)
    see(*torch.split(torch.randn(600, 4, device=DEVICE), counts.tolist()))
    see(functional.one_hot(chosen.flatten()), counts.cumsum(0)[-1].item())


def boxes() -> None:
    """Boxes that overlap by more than half, of given ones."""
    corner = torch.rand(200, 2, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    apart = torch.cdist(corner, corner)
    near = (apart < 0.1) & ~torch.eye(200, dtype=torch.bool, device=DEVICE)
    pairs = near.triu().nonzero()
    best, place = apart.masked_fill(~near, 9.0).min(1)
    see(pairs, place[best < 9], torch.unique(place), (best < 9).sum().item())


def named() -> None:
    """Operands by their names, and a list that is longer than what is looked into."""
    three = torch.tensor(3).to(DEVICE)
    see(torch.is_nonzero(input=three), torch.equal(input=three, other=three + 1))
    see(torch.allclose(input=three, other=three), torch.reshape(input=three, shape=(1,)))
    see(torch.argmax(input=torch.empty(9, device=DEVICE)), torch.tensor([three] * 300))
    torch.set_default_device(DEVICE)
    see(bool(torch.isfinite(torch.randn(9, requires_grad=True) * 2).all()))
    see(torch.empty(9).fill_(3)[0].item())
    torch.set_default_device(None)
    see(torch.searchsorted(sorted_sequence=torch.arange(9, device=DEVICE), input=three[None]))


for make in (
    *(lambda: edges(50, 400), lambda: edges(20000, 300_000)),
    *(sequences, experts, boxes, named),
):
    for within in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with within():
            make()
print(json.dumps(shapes))
