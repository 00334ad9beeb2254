#!/usr/bin/env python3
"""Train a checkpointed GPT whose memory is planned, and show what each step asked of the device.

    python examples/plan_training.py --size small --steps 30 --plan gpt.gmplan
    python examples/plan_training.py --size small --steps 30 --plan gpt.gmplan   # planned at once

The loop accumulates gradients over micro-batches and evaluates every tenth step. All that is
gmlake's is `AutoPlan` and the two `with auto.step(...)` lines. On a machine without a GPU run it
on the stand-in, where memory behaves as on a device and kernels compute nothing:

    python -m gmlake.standin --capacity 80GiB examples/plan_training.py --size medium
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import torch
    from torch import nn
except ImportError as problem:
    sys.exit(f"plan_training: {problem}; install it with: pip install torch")

sys.path.insert(0, str(Path(__file__).parents[1]))
from examples.train_gpt import GPT, SIZES, language_loss, random_batch

import gmlake

if TYPE_CHECKING:
    from collections.abc import Sequence

EVALUATE_EVERY = 10


class Training:
    """A GPT, its optimizer, and how to train and evaluate it once."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Make the model on the current device."""
        self.options = options
        self.config = SIZES[options.size]
        self.device = torch.device("cuda")
        with self.device:
            self.model = GPT(self.config, has_checkpoints=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, weight_decay=0.1)

    def _batch(self) -> torch.Tensor:
        sequence = min(self.options.sequence or self.config.context, self.config.context)
        return random_batch(self.config, self.options.batch, sequence, self.device)

    def train(self) -> None:
        """Take one optimizer step; gradients are the sum over several micro-batches."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.options.accumulate):
            loss = language_loss(self.model, self._batch()) / self.options.accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> None:
        """Compute the loss on one batch, without gradients."""
        self.model.eval()
        language_loss(self.model, self._batch())


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train; return what each step did."""
    auto = gmlake.AutoPlan() if options.plan is None else _load(options.plan)
    training = Training(options)
    steps: list[dict[str, Any]] = []
    for number in range(1, options.steps + 1):
        is_evaluation = number % EVALUATE_EVERY == 0
        kind = "evaluation" if is_evaluation else "train"
        began = time.perf_counter()
        with auto.step(kind):
            training.evaluate() if is_evaluation else training.train()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        report = auto.last
        if report is None:
            sys.exit("plan_training: gmlake does not serve this process; see the warning above")
        steps.append(
            {
                **asdict(report),
                "is_planned": report.is_planned,
                "hit_rate": report.hit_rate,
                "seconds": seconds,
            }
        )
        if not options.json:
            print(report, f"{seconds:.3f} s", sep=", ", flush=True)
    if options.plan is not None:
        auto.save(options.plan)
    return steps


def _load(path: Path) -> gmlake.AutoPlan:
    return gmlake.AutoPlan.load(path, missing_ok=True)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Train a checkpointed GPT whose memory is planned.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    parser.add_argument("--batch", type=_positive, default=4, help="sequences per micro-batch")
    parser.add_argument("--accumulate", type=_positive, default=4, help="micro-batches per step")
    parser.add_argument("--sequence", type=_positive, help="tokens (default: the model's context)")
    parser.add_argument("--steps", type=_positive, default=25, help="steps, evaluations included")
    parser.add_argument("--plan", type=Path, help="file to read plans from, and to write them to")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("plan_training: PyTorch sees no GPU; see the docstring for the stand-in")
    torch.manual_seed(0)
    gmlake.enable()
    steps = run(options)
    if options.json:
        peaks = {
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
        }
        json.dump({"steps": steps, "peak_bytes": peaks}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
