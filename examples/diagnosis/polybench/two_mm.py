#!/usr/bin/env python3
"""2MM of PolyBench: E = (A B) D, with everything allocated first and freed last.

    python examples/diagnosis/polybench/two_mm.py
    python examples/diagnosis/polybench/two_mm.py --fixed

Matrices are made on their device, so that on a CPU no second copy of them counts.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
import torch
from examples.diagnosis.polybench.running import Program, main


def wasteful(size: int, device: torch.device) -> float:
    """Allocate five matrices at once."""
    a = torch.empty(size, size, device=device)
    b = torch.empty(size, size, device=device)
    c = torch.empty(size, size, device=device)
    d = torch.empty(size, size, device=device)
    e = torch.empty(size, size, device=device)
    a.uniform_()
    b.uniform_()
    torch.mm(a, b, out=c)
    d.uniform_()
    torch.mm(c, d, out=e)
    result = e.sum().item()
    del a, b, c, d, e
    return result


def fixed(size: int, device: torch.device) -> float:
    """Allocate each matrix when it is needed; D and E live where A and B were."""
    a = torch.empty(size, size, device=device).uniform_()
    b = torch.empty(size, size, device=device).uniform_()
    c = torch.empty(size, size, device=device)
    torch.mm(a, b, out=c)
    d = a.uniform_()
    e = torch.mm(c, d, out=b)
    return e.sum().item()


PROGRAM = Program("2MM", wasteful, fixed)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
