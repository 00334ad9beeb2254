#!/usr/bin/env python3
"""What a diagnosis foresees of the paper's programs and of a GPT step, against what a fix saves.

    python benchmarks/diagnosis/diagnosed_programs.py [--device cuda] [--write]

PolyBench in PyTorch and the other programs of Table 4 as traces (Lin, Zhou, Su, "DrGPUM", ASPLOS
2023), each with its fixed twin, and the training step of examples/train_gpt.py. Bytes are those of
live objects at the peak; on a GPU those of CUDA's allocator stand beside them.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))
import torch
from examples.diagnosis import gpt, table4
from examples.diagnosis.polybench import bicg, gram_schmidt, running, three_mm, two_mm

import gmlake
import machine

PAPER_PERCENT = {"2MM": 40, "3MM": 57, "GramSchmidt": 33, "BICG": None}
POLYBENCH = {
    "2MM": two_mm.PROGRAM,
    "3MM": three_mm.PROGRAM,
    "GramSchmidt": gram_schmidt.PROGRAM,
    "BICG": bicg.PROGRAM,
}


def polybench(name: str, device: str) -> dict[str, Any]:
    """Run a program and its twin."""
    program = POLYBENCH[name]
    before = running.run(program, program.size, device)
    after = running.run(program, program.size, device, is_fixed=True)
    peak, fixed = before.diagnosis.peak_bytes, after.diagnosis.peak_bytes
    told = {
        "patterns": sorted(before.patterns),
        "peak_bytes": peak,
        "foreseen_bytes": before.diagnosis.fixed_peak_bytes,
        "measured_bytes": fixed,
        "percent": round(100 * (1 - fixed / peak), 2),
        "paper_percent": PAPER_PERCENT[name],
    }
    if before.allocated_bytes:
        told["allocator_bytes"] = [before.allocated_bytes, after.allocated_bytes]
    return told


def traced(program: table4.Program) -> dict[str, Any]:
    """Diagnose a trace, and measure its twin."""
    trace, peak = program.trace()
    diagnosis = gmlake.find_inefficiencies(trace)
    fixed = program.trace(fixed=True)[1]
    return {
        "patterns": sorted({found.pattern for found in diagnosis.findings}),
        "peak_bytes": peak,
        "foreseen_bytes": diagnosis.peak_with(program.fixed_findings(diagnosis)),
        "measured_bytes": fixed,
        "percent": round(100 * (1 - fixed / peak), 2),
        "paper_percent": program.percent,
    }


def step(device: str, batch: int) -> dict[str, Any]:
    """Diagnose a training step as PyTorch makes it on a GPU, and with the fused optimizer."""
    before, after = gpt.diagnosed(gpt.SMALL, torch.device(device), batch, gpt.SMALL.context)
    found = gpt.square_roots(before.diagnosis)
    return {
        "batch": batch,
        "pattern": found.example.pattern,
        "peak_bytes": before.diagnosis.peak_bytes,
        "foreseen_saving_bytes": found.saving_bytes,
        "measured_saving_bytes": before.diagnosis.peak_bytes - after.diagnosis.peak_bytes,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    figures: dict[str, Any] = {name: polybench(name, options.device) for name in POLYBENCH}
    figures |= {program.name: traced(program) for program in table4.PROGRAMS}
    figures["training step"] = [step(options.device, batch) for batch in (1, 4)]
    for name, told in figures.items():
        print(name, told)
    if options.write:
        is_cuda = options.device.startswith("cuda")
        gpu = torch.cuda.get_device_name() if is_cuda else "none: PyTorch on the CPU"
        machine.write(
            "diagnosed_programs", {"torch": torch.__version__, "figures": figures}, gpu=gpu
        )


if __name__ == "__main__":
    main()
