"""Runs the Python of a document, block after block, as a reader would who pastes them in.

Arguments: the document, a folder to work in, and "arena" or "base" for the blocks that name one,
else "": the settings of a process hold until it ends. Prints the lines where the blocks that ran
begin.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
from tests.standin.places import ROOT
from torch import nn

import gmlake

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r"\b(arena|base)=")
WIDTH = 512


def storage_recorder() -> Any:
    """Return the class that docs/tracing.md takes from an example."""
    path = ROOT / "examples" / "record_without_gpu.py"
    spec = importlib.util.spec_from_file_location("record_without_gpu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.StorageRecorder


class Reader:
    """What a reader has: a model, data, functions that train, and batches to serve."""

    def __init__(self) -> None:
        self.model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)]).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.loader = [torch.zeros(rows, WIDTH) for rows in (64, 96, 64)]
        self.batches = (64, 32)

    def train_on(self, batch: torch.Tensor) -> None:
        self.train_step(self.model, self.optimizer, batch.cuda())

    def train(self) -> None:
        for batch in self.loader:
            self.train_on(batch)

    @staticmethod
    def train_step(model: nn.Module, optimizer: Any, batch: torch.Tensor | None = None) -> None:
        rows = torch.zeros(8, WIDTH) if batch is None else batch
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    @staticmethod
    def build() -> tuple[nn.Module, Any]:
        model = nn.Linear(WIDTH, WIDTH)
        return model, torch.optim.AdamW(model.parameters())

    def names(self) -> dict[str, Any]:
        return {
            "torch": torch,
            "gmlake": gmlake,
            "model": self.model,
            "loader": self.loader,
            "batches": self.batches,
            "inputs": {rows: torch.zeros(rows, WIDTH, device="cuda") for rows in self.batches},
            "graphs": {},
            "outputs": {},
            "train": self.train,
            "train_on": self.train_on,
            "train_one_step": lambda: self.train_on(self.loader[0]),
            "train_step": self.train_step,
            "build": self.build,
        }


def main() -> None:
    document, folder = Path(sys.argv[1]), sys.argv[2]
    text = document.read_text(encoding="utf-8")
    os.chdir(folder)
    names = Reader().names()
    if "StorageRecorder" in text:
        names["StorageRecorder"] = storage_recorder()
    ran = []
    printed = sys.stdout
    sys.stdout = sys.stderr  # what the blocks print
    for found in BLOCK.finditer(text):
        setting = SETTING.search(found[1])
        if (setting[1] if setting else "") != sys.argv[3]:
            continue
        line = text.count("\n", 0, found.start()) + 2
        code = found[1].replace("...  # some steps", "train()")
        exec(compile("\n" * (line - 1) + code, str(document), "exec"), names)  # noqa: S102
        ran.append(line)
    sys.stdout = printed
    print(json.dumps({"ran": ran}))


if __name__ == "__main__":
    main()
