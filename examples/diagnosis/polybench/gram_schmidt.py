#!/usr/bin/env python3
"""GramSchmidt of PolyBench: A = Q R, with a whole matrix for R, of which each step needs one row.

    python examples/diagnosis/polybench/gram_schmidt.py
    python examples/diagnosis/polybench/gram_schmidt.py --fixed

Row k of R has N - k elements, so how often a row is accessed differs by 58 % from row to row.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
import torch
from examples.diagnosis.polybench.running import Program, main


def step(a: torch.Tensor, q: torch.Tensor, row: torch.Tensor, norm: torch.Tensor, k: int) -> None:
    """Compute column k of Q and a row of R, and take their product off the rest of A."""
    torch.mv(a[:, k:].t(), a[:, k], out=row)
    torch.sqrt(row[0], out=norm)
    row.div_(norm)
    torch.div(a[:, k], norm, out=q[:, k])
    a[:, k + 1 :].addr_(q[:, k], row[1:], alpha=-1)


def wasteful(size: int, device: torch.device) -> float:
    """Allocate all of R, whose rows are used one after another."""
    norm = torch.empty((), device=device)
    a = torch.empty(size, size, device=device)
    r = torch.empty(size, size, device=device)
    q = torch.empty(size, size, device=device)
    a.uniform_()
    for k in range(size):
        step(a, q, r[k, k:], norm, k)
    result = torch.sum(q, (0, 1), out=norm).item()
    del a, r, q, norm
    return result


def fixed(size: int, device: torch.device) -> float:
    """Use one row for every row of R."""
    norm = torch.empty((), device=device)
    a = torch.empty(size, size, device=device)
    r = torch.empty(size, device=device)
    q = torch.empty(size, size, device=device)
    a.uniform_()
    for k in range(size):
        step(a, q, r[k:], norm, k)
    return torch.sum(q, (0, 1), out=norm).item()


PROGRAM = Program("GramSchmidt", wasteful, fixed)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
