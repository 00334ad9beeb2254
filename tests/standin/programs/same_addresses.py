"""Trains with steps of which no two are the same, and prints where each tensor lay.

Arguments: the setting `base`, or nothing; the number of steps; a number of MiB to hold beside;
seconds to pause in every step, so that another process meets its streams at other moments.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import torch
from examples.train_gpt import GPT, Config, language_loss, random_batch

import gmlake
from gmlake.standin import control


def _train(steps: int, pause: float) -> list[int]:
    seen: list[int] = []

    def note(_module: object, _inputs: object, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            seen.append(output.data_ptr())

    config = Config(layers=2, width=256, heads=4, context=128, vocab=1000)
    drawn = random.Random(5)  # noqa: S311 (the same each time)
    device = torch.device("cuda")
    model = GPT(config).to(device)
    for module in model.modules():
        module.register_forward_hook(note)
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    for _ in range(steps):
        tokens = random_batch(config, drawn.randint(1, 8), drawn.randint(16, 128), device)
        language_loss(model, tokens).backward()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copies = [one.grad.clone() for one in model.parameters() if one.grad is not None]
        seen += [copy.data_ptr() for copy in copies]
        torch.cuda.current_stream().wait_stream(side)
        del copies
        time.sleep(pause)
        optimizer.step()
        optimizer.zero_grad()
    seen += [one.data_ptr() for one in model.parameters()]
    return seen


def main() -> None:
    """Train as the arguments say."""
    base, steps, beside, pause = sys.argv[1:]
    _held = bytearray(int(beside) << 20)
    knobs = {"base": base} if base else {}
    with gmlake.enabled(**knobs):
        seen = _train(int(steps), float(pause))
        reserved = control.calls().get("cuMemAddressReserve", 0)
    print(json.dumps({"seen": seen, "reservations": reserved}))


main()
