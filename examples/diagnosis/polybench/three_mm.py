#!/usr/bin/env python3
"""3MM of PolyBench: G = (A B) (C D), with everything allocated first and freed last.

    python examples/diagnosis/polybench/three_mm.py
    python examples/diagnosis/polybench/three_mm.py --fixed

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
    """Allocate seven matrices at once; E waits while the second product is computed."""
    a = torch.empty(size, size, device=device)
    b = torch.empty(size, size, device=device)
    c = torch.empty(size, size, device=device)
    d = torch.empty(size, size, device=device)
    e = torch.empty(size, size, device=device)
    f = torch.empty(size, size, device=device)
    g = torch.empty(size, size, device=device)
    a.uniform_()
    b.uniform_()
    torch.mm(a, b, out=e)
    c.uniform_()
    d.uniform_()
    torch.mm(c, d, out=f)
    torch.mm(e, f, out=g)
    result = g.sum().item()
    del a, b, c, d, e, f, g
    return result


def fixed(size: int, device: torch.device) -> float:
    """Hold three matrices at a time; E is on the host while the second product is computed."""
    a = torch.empty(size, size, device=device).uniform_()
    b = torch.empty(size, size, device=device).uniform_()
    e = torch.mm(a, b)
    away = e.cpu().numpy().tobytes()  # as bytes, so that on a CPU it is away as well
    del e
    c, d = a.uniform_(), b.uniform_()
    f = torch.mm(c, d)
    del a, b, c, d
    e = torch.frombuffer(bytearray(away), dtype=torch.float32).view(size, size).to(device)
    g = torch.mm(e, f)
    return g.sum().item()


PROGRAM = Program("3MM", wasteful, fixed)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
