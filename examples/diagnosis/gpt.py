#!/usr/bin/env python3
"""Diagnose a training step of the checkpointed GPT of train_gpt.py, and mend what saves most.

    python examples/diagnosis/gpt.py
    python examples/diagnosis/gpt.py --device cuda --size medium --sequence 256

AdamW as PyTorch makes it on a GPU takes memory for the square roots of all second moments at once,
as much as the parameters have, while the gradients are still there that nothing reads any more. The
report calls that a redundant allocation and says what it costs of the peak. The mended step asks
for the fused AdamW, which needs no such memory.
"""

# mypy: allow-untyped-calls, disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))
import torch
from examples.train_gpt import GPT, SIZES, Config, language_loss, random_batch
from torch import nn

from gmlake.diagnosis.operators import diagnose
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gmlake.diagnosis import Diagnosis, Group

SMALL = Config(layers=4, width=256, heads=4, context=128, vocab=512)


@dataclass(frozen=True)
class Step:
    """One diagnosed step. allocated_bytes: the peak that CUDA's allocator saw, 0 on a CPU."""

    diagnosis: Diagnosis
    allocated_bytes: int


class Training:
    """A GPT, its optimizer, and the step of train_gpt.py."""

    def __init__(self, config: Config, device: torch.device, *, is_fused: bool) -> None:
        """Make the model and an optimizer; without is_fused as it is by default on a GPU."""
        torch.manual_seed(0)
        self.device = device
        with device:
            self.model = GPT(config, has_checkpoints=True)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=3e-4,
            weight_decay=0.1,
            fused=is_fused,
            foreach=not is_fused,
        )

    def step(self, batch: int, sequence: int) -> None:
        """Take a step on random tokens."""
        tokens = random_batch(self.model.config, batch, sequence, self.device)
        loss = language_loss(self.model, tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def diagnosed_step(self, batch: int, sequence: int) -> Step:
        """Take a step before, in which the optimizer makes its state, and diagnose the next."""
        self.step(batch, sequence)
        is_cuda = self.device.type == "cuda"
        if is_cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        with diagnose(devices=self.device.type, model=self.model) as report:
            self.step(batch, sequence)
        allocated = torch.cuda.max_memory_allocated(self.device) if is_cuda else 0
        (diagnosis,) = report.devices.values()
        return Step(diagnosis, allocated)


def square_roots(diagnosis: Diagnosis) -> Group:
    """Return the finding about the optimizer's square roots."""
    return next(
        group
        for group in diagnosis.groups
        if group.example.pattern == "redundant allocation"
        and group.example.object_name.startswith("_foreach_sqrt")
    )


def diagnosed(config: Config, device: torch.device, batch: int, sequence: int) -> tuple[Step, Step]:
    """Return a step as it is, and the mended one."""
    before = Training(config, device, is_fused=False).diagnosed_step(batch, sequence)
    after = Training(config, device, is_fused=True).diagnosed_step(batch, sequence)
    return before, after


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Diagnose a training step of a checkpointed GPT, and mend it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, help="of the model (default: 4 layers of 256)")
    parser.add_argument("--batch", type=int, default=1, help="sequences")
    parser.add_argument("--sequence", type=int, default=128, help="tokens of each")
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where to train"
    )
    options = parser.parse_args(arguments)
    config = SIZES[options.size] if options.size else SMALL
    before, after = diagnosed(config, torch.device(options.device), options.batch, options.sequence)
    found = square_roots(before.diagnosis)
    measured = before.diagnosis.peak_bytes - after.diagnosis.peak_bytes
    print(f"{found.count} times: {found.example.change}")
    print(f"predicted saving {format_size(found.saving_bytes)} of the peak of ", end="")
    print(format_size(before.diagnosis.peak_bytes))
    print(f"measured saving  {format_size(measured)}")
    if after.allocated_bytes:
        saved = before.allocated_bytes - after.allocated_bytes
        print(f"by the allocator {format_size(saved)}", end=" of the peak of ")
        print(format_size(before.allocated_bytes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
