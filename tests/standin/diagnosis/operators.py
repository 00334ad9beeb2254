"""Diagnoses what runs on the stand-in GPU; prints what was seen."""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[3]))
from examples.diagnosis import gpt, mistakes
from examples.diagnosis.polybench import running, three_mm, two_mm
from examples.train_gpt import SIZES

from gmlake.diagnosis.operators import diagnose


def step() -> dict[str, Any]:
    """Take a step with a backward pass, a copy between devices and a second stream."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
    side = torch.cuda.Stream()
    with diagnose(model=model) as report:
        model(torch.zeros(8, 64).cuda()).square().mean().backward()
        with torch.cuda.stream(side):
            torch.zeros(4, device="cuda").add_(1)
    trace = report.devices["cuda:0"].trace
    backward = [trace.place(api) for api in range(len(trace.apis)) if trace.label(api) == "mm"]
    return {
        "devices": sorted(report.devices),
        "labels": trace.labels,
        "scopes": [place.scope for place in backward],
        "functions": [place.frames[0].split("  ")[0] for place in backward],
        "copies": [found.trace.labels.count("_to_copy") for found in report.devices.values()],
        "streams": len(set(trace.apis["stream"].tolist())),
    }


def captured() -> dict[str, Any]:
    """Use indices while a CUDA graph is captured, where waiting for the GPU is an error."""
    table, rows = torch.zeros(8, 4, device="cuda"), torch.zeros(2, dtype=torch.int64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with diagnose() as report, torch.cuda.graph(graph):
        table.index_select(0, rows)
    trace = report.devices["cuda:0"].trace
    return {"labels": trace.labels, "ranges": len(trace.ranges)}


def savings() -> dict[str, Any]:
    """Compare what reports say with what PyTorch's allocator saw."""
    told: dict[str, Any] = {}
    for module in (two_mm, three_mm):
        runs = [running.run(module.PROGRAM, 512, "cuda", is_fixed=fixed) for fixed in (False, True)]
        told[module.PROGRAM.name] = [run.allocated_bytes for run in runs]
    before, after = gpt.diagnosed(SIZES["small"], torch.device("cuda"), 1, 256)
    told["GPT"] = {
        "predicted": gpt.square_roots(before.diagnosis).saving_bytes,
        "measured": before.allocated_bytes - after.allocated_bytes,
    }
    return told


def programs() -> dict[str, Any]:
    """Say what is said of small programs, those with one mistake and those without any."""
    told: dict[str, Any] = {}
    for name, program in mistakes.PROGRAMS.items():
        with contextlib.redirect_stdout(io.StringIO()):
            report = mistakes.diagnosed(program)
        told[name] = {
            "mistake": mistakes.marked_line(program),
            "named": [advice.line for advice in report.advice],
            "savings": [advice.saving_bytes for advice in report.advice],
            "text": str(report),
        }
    return told


PROGRAMS = {"step": step, "captured": captured, "savings": savings, "programs": programs}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]]()))
