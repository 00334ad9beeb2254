#!/usr/bin/env python3
"""BICG of PolyBench: q = A p and s = A^T r, of a sparse A whose rows differ in length.

    python examples/diagnosis/polybench/bicg.py
    python examples/diagnosis/polybench/bicg.py --fixed

Every element of A is added into q and s by itself, so the places of long rows and columns are
written far more often than others. What the paper mends by fast memory for the hot places, the twin
mends by sorting: each sum is written once.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
import torch
from examples.diagnosis.polybench.running import Program, main


def places(size: int) -> tuple[list[int], list[int]]:
    """Return the row and column of each element: row i has about 2 size / (i + 1) of them."""
    pairs = [
        (i, j % (size * 3 // 4))
        for i in range(size)
        for j in range(0, max(1, 2 * size // (i + 1)) * (i % 3 + 1), i % 3 + 1)
    ]
    rows, columns = zip(*sorted(set(pairs)), strict=True)
    return list(rows), list(columns)


def wasteful(size: int, device: torch.device) -> float:
    """Add one element after another into q and s."""
    listed = places(size)
    count, width = len(listed[0]), size * 3 // 4
    values = torch.empty(count, device=device)
    rows = torch.tensor(listed[0], device=device)
    columns = torch.tensor(listed[1], device=device)
    p = torch.empty(width, device=device)
    r = torch.empty(size, device=device)
    q = torch.empty(size, device=device)
    s = torch.empty(width, device=device)
    products = torch.empty(count, device=device)
    total = torch.empty((), device=device)
    values.fill_(0.5)
    p.uniform_()
    r.uniform_()
    q.zero_()
    s.zero_()
    torch.index_select(p, 0, columns, out=products)
    q.index_add_(0, rows, products.mul_(values))
    torch.index_select(r, 0, rows, out=products)
    s.index_add_(0, columns, products.mul_(values))
    result = torch.sum(q, 0, out=total).item()
    result += 2 * torch.sum(s, 0, out=total).item()
    del values, rows, columns, p, r, q, s, products, total
    return result


def fixed(size: int, device: torch.device) -> float:
    """Sum the elements of each row, and of each column, at once."""
    rows, columns = places(size)
    width = size * 3 // 4
    p = torch.empty(width, device=device).uniform_()
    r = torch.empty(size, device=device).uniform_()
    q = sums(p, columns, rows, size)
    del p
    s = sums(r, rows, columns, width)
    return q.sum().item() + 2 * s.sum().item()


def sums(factors: torch.Tensor, chosen: list[int], into: list[int], count: int) -> torch.Tensor:
    """Return for each place the sum of half of the factors that were chosen for it."""
    order = sorted(range(len(into)), key=into.__getitem__)
    lengths = [0] * count
    for place in into:
        lengths[place] += 1
    index = torch.tensor([chosen[at] for at in order], device=factors.device)
    products = factors[index].mul_(0.5)
    return torch.segment_reduce(
        products, "sum", lengths=torch.tensor(lengths, device=factors.device), unsafe=True
    )


PROGRAM = Program("BICG", wasteful, fixed)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
