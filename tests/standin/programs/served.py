"""Trains a checkpointed GPT on sequences of several lengths, with one allocator or another.

    served.py default|native|full SNAPSHOT [STEPS [--periodic]]

Expandable segments are chosen by PYTORCH_ALLOC_CONF. With --periodic, every step has the same
length. Prints as JSON what was reserved at the peak, and the calls of each step that take memory of
the device or give it back.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import GPT, Config, language_loss, random_batch
from tests.standin.training import memory_calls

import gmlake
from gmlake.standin import control

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CONFIG = Config(layers=12, width=1024, heads=16, context=1024, vocab=20000)
LENGTHS = (1024, 384, 768, 640)
BATCH = 8


def region(way: str) -> AbstractContextManager[Any]:
    """Return what the whole training runs in."""
    if way == "default":
        return nullcontext()
    torch.cuda.init()  # it may be in use already
    return gmlake.enabled()


def train(steps: int, lengths: tuple[int, ...]) -> list[dict[str, int]]:
    """Train, and return the calls of each step."""
    device = torch.device("cuda")
    with device:
        model = GPT(CONFIG, has_checkpoints=True)
    optimizer = torch.optim.AdamW(model.parameters())
    calls = []
    for step in range(steps):
        control.reset_calls()
        tokens = random_batch(CONFIG, BATCH, lengths[step % len(lengths)], device)
        language_loss(model, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        calls.append(memory_calls(control.calls()))
    return calls


def main() -> None:
    """Train and report."""
    way, snapshot, *rest = sys.argv[1:]
    steps = int(rest[0]) if rest else len(LENGTHS)
    lengths = LENGTHS[:1] if "--periodic" in rest else LENGTHS
    with region(way):
        torch.cuda.memory._record_memory_history(context=None)  # noqa: SLF001 (its only name)
        calls = train(steps, lengths)
        results = {
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
            "calls": calls,
        }
        torch.cuda.memory._dump_snapshot(snapshot)  # noqa: SLF001
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
